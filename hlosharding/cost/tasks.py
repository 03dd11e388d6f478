"""When tasks run that wait for each other and share lanes: the core of every simulation.

Floor: cost.  A lane does one thing at a time: the compute stream of a device, its way out.  Knows nothing of what tasks
do; they are numbers in flat lists, for there are hundreds of thousands of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

NOTHING = -1
"""Instead of a task's number: it waited for none."""


@dataclass(slots=True)
class Tasks:
    """Tasks by number; the numbers are the program's order."""

    seconds: list[float] = field(default_factory=list[float])
    lanes: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """The lanes a task holds while it runs."""
    waits: list[Sequence[int]] = field(default_factory=list[Sequence[int]])
    """Tasks that must have ended before it starts."""

    def add(self, seconds: float, lanes: tuple[int, ...], waits: Sequence[int]) -> int:
        """The number of a new task."""
        self.seconds.append(seconds)
        self.lanes.append(lanes)
        self.waits.append(waits)
        return len(self.seconds) - 1


def users_of(waits: Sequence[Sequence[int]]) -> list[list[int]]:
    """Of each task those that wait for it.

    >>> users_of([(), (0,), (0, 1)])
    [[1, 2], [2], []]
    """
    users: list[list[int]] = [[] for _ in waits]
    for number, before in enumerate(waits):
        for each in before:
            users[each].append(number)
    return users


@dataclass(frozen=True, slots=True)
class Times:
    """Of each task when it starts and ends, and the task that kept it from starting earlier."""

    start: list[float]
    end: list[float]
    cause: list[int]

    @property
    def makespan(self) -> float:
        """When all is done."""
        return max(self.end, default=0.0)


def run_in_order(tasks: Tasks) -> Times:
    """Every lane does its tasks in the program's order; a task on several lanes starts when all of them are free.

    Tasks wait only for tasks before them.

    >>> tasks = Tasks()
    >>> first = tasks.add(2.0, (0,), ())
    >>> both = tasks.add(1.0, (0, 1), ())
    >>> _ = tasks.add(5.0, (1,), (first,))
    >>> run_in_order(tasks).start
    [0.0, 2.0, 3.0]
    """
    lanes = 1 + max((lane for held in tasks.lanes for lane in held), default=NOTHING)
    free, last = [0.0] * lanes, [NOTHING] * lanes
    starts: list[float] = []
    ends: list[float] = []
    causes: list[int] = []
    for seconds, held, waits in zip(tasks.seconds, tasks.lanes, tasks.waits, strict=True):
        start, cause = 0.0, NOTHING
        for before in waits:
            if ends[before] > start:
                start, cause = ends[before], before
        for lane in held:
            if free[lane] > start:
                start, cause = free[lane], last[lane]
        end = start + seconds
        for lane in held:
            free[lane], last[lane] = end, len(starts)
        starts.append(start)
        ends.append(end)
        causes.append(cause)
    return Times(starts, ends, causes)


def run_first_ready(tasks: Tasks) -> Times:
    """Every lane takes the first task, in the program's order, that waits for nothing more, as a latency-hiding
    scheduler would.  A task holds one lane, or none: then it takes no time, and hands on what it waited for.

    >>> tasks = Tasks()
    >>> slow = tasks.add(2.0, (0,), ())
    >>> late = tasks.add(1.0, (1,), (slow,))
    >>> _ = tasks.add(1.0, (1,), ())
    >>> run_first_ready(tasks).start
    [0.0, 2.0, 0.0]
    """
    return _FirstReady(tasks).run()


class _FirstReady:
    def __init__(self, tasks: Tasks) -> None:
        self.tasks, count = tasks, len(tasks.seconds)
        self.missing = [len(waits) for waits in tasks.waits]
        self.users = users_of(tasks.waits)
        self.starts, self.ends, self.causes = [0.0] * count, [0.0] * count, [NOTHING] * count
        self.latest = [NOTHING] * count
        """Of a finished task the one on a lane that its users had to wait for: itself, if it is on one."""
        self.ready: dict[int, list[int]] = {lane: [] for held in tasks.lanes for lane in held}
        self.before: dict[int, int] = {}
        self.busy: set[int] = set()
        self.running: list[tuple[float, int]] = []
        self.now = 0.0

    def run(self) -> Times:
        held, users = self.tasks.lanes, self.users
        self._arrive([n for n, missing in enumerate(self.missing) if not missing and (held[n] or users[n])])
        self._start()
        while self.running:
            self.now, number = heappop(self.running)
            self.busy.discard(self.tasks.lanes[number][0])
            self._finish(number, number)
            self._start()
        return Times(self.starts, self.ends, self.causes)

    def _arrive(self, numbers: Sequence[int]) -> None:
        """These wait for nothing more."""
        for number in numbers:
            held = self.tasks.lanes[number]
            if held:
                heappush(self.ready[held[0]], number)
            else:
                self.starts[number] = self.ends[number] = self.now
                self._finish(number, self._waited(number))

    def _start(self) -> None:
        for lane, waiting in self.ready.items():
            if lane not in self.busy and waiting:
                number = heappop(waiting)
                before = self.before.get(lane, NOTHING)
                waited = self._waited(number)
                self.causes[number] = before if self._end(before) > self._end(waited) else waited
                self.starts[number], self.ends[number] = self.now, self.now + self.tasks.seconds[number]
                self.before[lane] = number
                self.busy.add(lane)
                heappush(self.running, (self.ends[number], number))

    def _waited(self, number: int) -> int:
        return max((self.latest[n] for n in self.tasks.waits[number]), key=self._end, default=NOTHING)

    def _end(self, number: int) -> float:
        # Below every end, those at the start of the run among them.
        return self.ends[number] if number != NOTHING else -1.0

    def _finish(self, number: int, latest: int) -> None:
        self.latest[number] = latest
        arrived: list[int] = []
        for user in self.users[number]:
            self.missing[user] -= 1
            if self.missing[user] == 0:
                arrived.append(user)
        self._arrive(arrived)
