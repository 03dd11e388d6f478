"""Devices that do the same are simulated once: the replicas of a stage, the ranks of a submesh.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property


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
        taking_part: dict[int, list[int]] = {}
        for number, group in enumerate(dict.fromkeys(groups)):
            for device in group:
                taking_part.setdefault(device, []).append(number)
        numbers: dict[Hashable, int] = {}
        self._class = {
            device: numbers.setdefault((kind_of(device), *taking_part[device]), len(numbers))
            for device in sorted(taking_part)
        }
        self._found: dict[tuple[int, ...], tuple[int, ...]] = {}

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The devices of each class."""
        found: dict[int, list[int]] = {}
        for device, number in self._class.items():
            found.setdefault(number, []).append(device)
        return tuple(tuple(found[number]) for number in sorted(found))

    def of(self, devices: Sequence[int]) -> tuple[int, ...]:
        """The classes of a group's devices."""
        key = tuple(devices)
        if key not in self._found:
            self._found[key] = tuple(sorted({self._class[device] for device in key}))
        return self._found[key]
