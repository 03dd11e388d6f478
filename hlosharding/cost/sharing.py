"""When tasks run that share links: as `run_in_order`, but what is under way at once divides what it goes through.

Floor: cost.  Rates are max-min fair, found by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): all
that are under way grow together until a link is full, or one is as fast as when alone.  Knows neither machine nor
schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from hlosharding.cost.tasks import NOTHING, Tasks, Times, users_of

_END, _BYTES = range(2)
"""Events of a task: at one moment links are given back before they are taken."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """How a task uses links."""

    latency: float
    """Seconds from its start before its bytes are under way: these no other task makes longer."""
    speed: float
    """Bytes per second over each of its links when it is alone; none of them carries less."""
    links: tuple[int, ...]


def run_sharing_links(tasks: Tasks, uses: Mapping[int, LinkUse], bandwidths: Sequence[float]) -> Times:
    """As `run_in_order`, of tasks whose `seconds` are those when alone.

    `uses`: by task, of those that use links; `bandwidths`: bytes per second, by link.

    >>> tasks = Tasks()
    >>> both = [tasks.add(3.0, (lane,), ()) for lane in range(2)]
    >>> use = LinkUse(latency=1.0, speed=1e9, links=(0,))
    >>> run_sharing_links(tasks, dict.fromkeys(both, use), [1e9]).end
    [5.0, 5.0]
    """
    return _Sharing(tasks, uses, bandwidths).run()


def divide_fairly(uses: Mapping[int, LinkUse], bandwidths: Sequence[float]) -> dict[int, float]:
    """Of each task under way the share of its speed that it has.

    >>> slow, fast = LinkUse(0.0, 2.0, (0,)), LinkUse(0.0, 9.0, (0, 1))
    >>> divide_fairly({0: slow, 1: fast, 2: fast}, [10.0, 9.0])
    {0: 1.0, 1: 0.4444444444444444, 2: 0.4444444444444444}
    """
    left = {link: bandwidths[link] for use in uses.values() for link in use.links}
    growing, shares = dict(uses), dict[int, float]()
    while growing:
        users = Counter(link for use in growing.values() for link in use.links)
        levels = {link: left[link] / count for link, count in users.items()}
        level = min(levels.values())
        # Those that are as fast as when alone leave the rest of their links to others; else some link is full.
        done = [task for task, use in growing.items() if use.speed <= level]
        # Exact: `level` is one of `levels`.  So each turn ends at least one task, and there are no more turns than
        # tasks.
        done = done or [task for task, use in growing.items() if min(levels[link] for link in use.links) == level]
        for task in done:
            use = growing.pop(task)
            rate = min(use.speed, level)
            shares[task] = rate / use.speed
            for link in use.links:
                left[link] -= rate
    return shares


class _Sharing:
    def __init__(self, tasks: Tasks, uses: Mapping[int, LinkUse], bandwidths: Sequence[float]) -> None:
        self.tasks, self.uses, self.bandwidths = tasks, uses, bandwidths
        count = len(tasks.seconds)
        self.waits = _with_lanes(tasks)
        self.missing = [len(waits) for waits in self.waits]
        self.users = users_of(self.waits)
        self.starts, self.ends, self.causes = [0.0] * count, [inf] * count, [NOTHING] * count
        self.is_done = [False] * count
        self.shares: dict[int, float] = {}
        """Of those whose bytes are under way."""
        self.on_link: dict[int, dict[int, None]] = {}
        self.events: list[tuple[float, int, int]] = []

    def run(self) -> Times:
        for number, missing in enumerate(self.missing):
            if not missing:
                self._start(number)
        while self.events:
            now, event, number = heappop(self.events)
            if event == _BYTES:
                self._take_links(number, now)
            elif now == self.ends[number] and not self.is_done[number]:  # else it was slowed down, or sped up, since
                self._finish(number, now)
        return Times(self.starts, self.ends, self.causes)

    def _start(self, number: int) -> None:
        start, use = 0.0, self.uses.get(number)
        for before in self.waits[number]:
            if self.ends[before] > start:
                start, self.causes[number] = self.ends[before], before
        self.starts[number] = start
        self._ends_at(number, start + self.tasks.seconds[number])
        if use is not None and use.links and use.latency < self.tasks.seconds[number]:
            heappush(self.events, (start + use.latency, _BYTES, number))

    def _ends_at(self, number: int, when: float) -> None:
        self.ends[number] = when
        heappush(self.events, (when, _END, number))

    def _finish(self, number: int, now: float) -> None:
        self.is_done[number] = True
        if self.shares.pop(number, None) is not None:
            for link in self.uses[number].links:
                del self.on_link[link][number]
            self._divide(number, now)
        for user in self.users[number]:
            self.missing[user] -= 1
            if not self.missing[user]:
                self._start(user)

    def _take_links(self, number: int, now: float) -> None:
        if self.is_done[number]:  # what is left was lost in rounding
            return
        self.shares[number] = 1.0
        for link in self.uses[number].links:
            self.on_link.setdefault(link, {})[number] = None
        self._divide(number, now)

    def _divide(self, number: int, now: float) -> None:
        """Anew, what a task has taken or given back.  Who meets nobody goes on as it did, to the last bit."""
        meeting = self._meeting(number)
        if meeting.keys() <= {number}:
            return
        for task, share in divide_fairly(meeting, self.bandwidths).items():
            before = self.shares[task]
            if share != before:
                self.shares[task] = share
                self._ends_at(task, now + (self.ends[task] - now) * before / share)

    def _meeting(self, number: int) -> dict[int, LinkUse]:
        """All under way that share links with a task, be it by way of others."""
        found: dict[int, LinkUse] = {}
        links = list(self.uses[number].links)
        seen = set(links)
        # `links` grows while it is walked.
        for link in links:
            for task in self.on_link[link]:
                if task not in found:
                    found[task] = self.uses[task]
                    links += [other for other in found[task].links if other not in seen]
                    seen.update(found[task].links)
        return found


def _with_lanes(tasks: Tasks) -> list[list[int]]:
    """Of each task those for which it waits: its own, and the one before it on each of its lanes."""
    last: dict[int, int] = {}
    found: list[list[int]] = []
    for number, (held, waits) in enumerate(zip(tasks.lanes, tasks.waits, strict=True)):
        found.append([*waits, *(last[lane] for lane in held if lane in last)])
        last.update(dict.fromkeys(held, number))
    return found
