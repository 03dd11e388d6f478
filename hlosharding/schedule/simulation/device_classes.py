"""Devices that do the same are simulated once: the replicas of a stage, the ranks of a submesh.

Floor: schedule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache


class DeviceClasses:
    """Devices by the groups that they take part in: two are of one class where they are in the same ones, and alike.

    `kind_of`: what devices are that are unlike.

    >>> classes = DeviceClasses([(0, 1, 2, 3), (2, 3)], lambda device: "any")
    >>> classes.members
    ((0, 1), (2, 3))
    >>> classes.of((2, 3)), classes.of((0, 1, 2, 3))
    ((1,), (0, 1))
    """

    def __init__(self, groups: Iterable[tuple[int, ...]], kind_of: Callable[[int], Hashable]) -> None:
        taking_part: defaultdict[int, list[int]] = defaultdict(list)
        for number, group in enumerate(dict.fromkeys(groups)):
            for device in group:
                taking_part[device].append(number)
        alike: defaultdict[Hashable, list[int]] = defaultdict(list)
        for device in sorted(taking_part):
            alike[kind_of(device), *taking_part[device]].append(device)
        self.members = tuple(map(tuple, alike.values()))
        """The devices of each class."""
        class_of = {device: number for number, devices in enumerate(self.members) for device in devices}
        self._of: Callable[[tuple[int, ...]], tuple[int, ...]] = cache(
            lambda devices: tuple(sorted({class_of[device] for device in devices}))
        )

    def of(self, devices: Sequence[int]) -> tuple[int, ...]:
        """The classes of a group's devices."""
        return self._of(tuple(devices))
