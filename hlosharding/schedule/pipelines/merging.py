"""From what each device does to one list for all: by the times of the ideal run, so that a transfer stands where it can
begin, and holds up nobody who has something else to do.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from hlosharding.errors import ScheduleError

A = TypeVar("A", bound=Hashable)


class Slot(NamedTuple):
    """When something runs in the ideal run."""

    start: float
    end: float


def run_ideally(
    orders: Sequence[Sequence[A]], waits: Callable[[A], Sequence[A]], seconds: Callable[[A], float]
) -> Mapping[A, Slot]:
    """When each action runs if every device does its own in order, and each waits for those that `waits` names.

    Raises ScheduleError where they wait for each other for ever.

    >>> found = run_ideally([["a", "c"], ["b"]], {"a": (), "b": ("a",), "c": ()}.__getitem__, lambda _: 1.0)
    >>> found["b"], found["c"]
    (Slot(start=1.0, end=2.0), Slot(start=1.0, end=2.0))
    >>> run_ideally([["a"], ["b"]], {"a": ("b",), "b": ("a",)}.__getitem__, lambda _: 1.0)
    Traceback (most recent call last):
        ...
    hlosharding.errors.ScheduleError: the devices wait for each other: device 0 for b before a, device 1 for a before b
    """
    return _IdealRun(orders, waits, seconds).run()


@dataclass
class _IdealRun(Generic[A]):
    orders: Sequence[Sequence[A]]
    waits: Callable[[A], Sequence[A]]
    seconds: Callable[[A], float]

    def __post_init__(self) -> None:
        self.slots: dict[A, Slot] = {}
        self.free = [0.0] * len(self.orders)
        self.place = [0] * len(self.orders)
        self.waiting: dict[A, list[int]] = {}
        """Devices whose next action waits for this one."""
        self.ready: list[tuple[float, int]] = []

    def run(self) -> Mapping[A, Slot]:
        for device in range(len(self.orders)):
            self._try_next(device)
        while self.ready:
            start, device = heappop(self.ready)
            action = self.orders[device][self.place[device]]
            self.slots[action] = Slot(start, start + self.seconds(action))
            self.free[device] = self.slots[action].end
            self.place[device] += 1
            for other in (device, *self.waiting.pop(action, ())):
                self._try_next(other)
        stuck = [n for n, order in enumerate(self.orders) if self.place[n] < len(order)]
        if stuck:
            raise ScheduleError(f"the devices wait for each other: {', '.join(map(self._stuck_text, stuck))}")
        return self.slots

    def _try_next(self, device: int) -> None:
        """What a device does next: it is ready, or waits for one action more."""
        if self.place[device] == len(self.orders[device]):
            return
        before = self.waits(self.orders[device][self.place[device]])
        # One is enough: so a device is in one list of `waiting` at most, and never in `ready` twice.
        missing = next((action for action in before if action not in self.slots), None)
        if missing is None:
            heappush(self.ready, (max([self.free[device], *(self.slots[a].end for a in before)]), device))
        else:
            self.waiting.setdefault(missing, []).append(device)

    def _stuck_text(self, device: int) -> str:
        action = self.orders[device][self.place[device]]
        missing = next(each for each in self.waits(action) if each not in self.slots)
        return f"device {device} for {missing} before {action}"
