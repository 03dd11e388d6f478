"""The axes in which tilings are written: a device's place, as digits.

Floor: sharding.  Device numbers and tile counts; nothing of names, kinds of sharding, shapes or prices.

All devices stand in some order, and the number at which one stands is its place.  A tiling that is a transposed grid
counts through digits of that place, and the digits of several tilings, cut where any of them begins or ends, are the
largest axes in which each can be written: 8 devices as `[2,4]<=[8]` and `[4,2]<=[8]` have axes of 2, 2 and 2, for the
first cuts the place at stride 4, the second at stride 2.  With `[4,2]<=[2,4]T(1,0)` nothing cuts the 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hlosharding.once import remembered
from hlosharding.sharding.tile_assignment import Dims, find_iota

Table = npt.NDArray[np.int64]
Axes = tuple[int, ...]
"""Numbers of axes, the first is the major one."""


class Digit(NamedTuple):
    """Some of a place: `place // stride % size`."""

    stride: int
    size: int

    @property
    def end(self) -> int:
        """The stride of the next digit."""
        return self.stride * self.size


Digits = tuple[Digit, ...]
"""Major first."""


def ends_of(digits: Iterable[Digit]) -> set[int]:
    """The strides at which digits begin and end.

    >>> sorted(ends_of([Digit(4, 2), Digit(1, 2)]))
    [1, 2, 4, 8]
    """
    return {stride for digit in digits for stride in (digit.stride, digit.end)}


@dataclass(frozen=True, eq=False)
class DeviceGrid:
    """Devices along axes.  What is asked of it is found once.

    >>> grid = DeviceGrid((2, 4), (0, 1, 2, 3, 4, 5, 6, 7))
    >>> grid.groups((0,))
    ((0, 4), (1, 5), (2, 6), (3, 7))
    """

    sizes: Dims
    """Devices along each axis, the first is the major one."""
    devices: Dims
    """All devices, in row-major order of the axes."""

    @property
    def num_devices(self) -> int:
        """Product of the sizes."""
        return len(self.devices)

    @cached_property
    def digits(self) -> Digits:
        """What each axis is of a place."""
        return tuple(Digit(math.prod(self.sizes[axis + 1 :]), size) for axis, size in enumerate(self.sizes))

    @cached_property
    def place(self) -> Table:
        """[device]: where it stands among `devices`; -1 where it does not."""
        devices = np.array(self.devices, np.int64)
        found = np.full(devices.max() + 1, -1, np.int64)
        found[devices] = np.arange(len(devices))
        return found

    @cached_property
    def coordinates(self) -> Table:
        """[device, axis]"""
        strides, sizes = np.array(self.digits, np.int64).reshape(-1, 2).T
        return self.place[:, None] // strides % sizes

    @remembered
    def product(self, axes: Axes) -> int:
        """Devices along several axes."""
        return math.prod(self.sizes[a] for a in axes)

    @remembered
    def position(self, axes: Axes) -> Table:
        """[device]: number along several axes, the first is the major one."""
        found = np.zeros(len(self.place), np.int64)
        for a in axes:
            found = found * self.sizes[a] + self.coordinates[:, a]
        # It is remembered: all who ask get this very array.
        found.flags.writeable = False
        return found

    @remembered
    def groups(self, axes: Axes) -> tuple[Dims, ...]:
        """Devices that differ along `axes` only, in the order of those axes."""
        rest = tuple(a for a in range(len(self.sizes)) if a not in axes)
        # The last key counts first: group by group, and in each along the axes.
        order = np.lexsort((self.position(axes), self.position(rest)))
        return tuple(map(tuple, order.reshape(-1, self.product(axes)).tolist()))

    def digits_of(self, tiles: Table, *, unordered: bool = False) -> tuple[Digits, ...] | None:
        """The digits that each dim of a tile assignment counts through; None where it does not so take all devices.

        `unordered`: devices along the last dim may stand in any order.

        >>> whole = DeviceGrid((6,), (0, 1, 2, 3, 4, 5))
        >>> whole.digits_of(np.array([[0, 2, 4], [1, 3, 5]]))
        ((Digit(stride=1, size=2),), (Digit(stride=2, size=3),))
        """
        places = self._places_of(tiles)
        if places is None:
            return None
        return _digits_by_dim(np.sort(places) if unordered else places)

    def digits_along(self, groups: Sequence[Dims], *, ordered: bool) -> Digits | None:
        """The digits along which all groups run (members in that order if `ordered`); None where there are none.

        >>> whole = DeviceGrid((8,), (0, 1, 2, 3, 4, 5, 6, 7))
        >>> whole.digits_along(((0, 4), (1, 5), (2, 6), (3, 7)), ordered=True)
        (Digit(stride=4, size=2),)
        """
        if len(set(map(len, groups))) != 1:
            return None
        places = self._places_of(np.array(groups, np.int64))
        if places is None:
            return None
        places = places if ordered else np.sort(places)
        # Groups may be listed in any order: by their first members they stand as the grid counts.
        found = _digits_by_dim(places[np.argsort(places[:, 0])])
        return found[1] if found is not None else None

    def _places_of(self, devices: Table) -> Table | None:
        """None for fewer or others than all."""
        if devices.size != len(self.devices) or devices.max() >= len(self.place):
            return None
        return self.place[devices]

    def cut_at(self, strides: Iterable[int]) -> DeviceGrid | None:
        """The axes cut at these strides of a place, none of size 1; None where not each stride divides the next.

        >>> whole = DeviceGrid((12,), tuple(range(12)))
        >>> whole.cut_at({2, 6}).sizes, whole.cut_at({2, 3})
        ((2, 3, 2), None)
        """
        chain = sorted({1, len(self.devices), *strides, *(axis.stride for axis in self.digits)})
        if chain[-1] != len(self.devices) or any(large % small for small, large in pairwise(chain)):
            return None
        sizes = [large // small for small, large in pairwise(chain)]
        return DeviceGrid(tuple(reversed(sizes)), self.devices)

    def axes_within(self, digits: Iterable[Digit]) -> Axes:
        """The axes that lie in digits, in their order: the digits themselves, on a grid that is cut at their ends."""
        return tuple(
            axis
            for digit in digits
            for axis, (stride, size) in enumerate(self.digits)
            if size > 1 and digit.stride <= stride and stride * size <= digit.end
        )

    def axis_at(self, stride: int) -> int:
        """The axis that a step of `stride` places goes along."""
        return next(n for n, axis in enumerate(self.digits) if axis.stride <= stride < axis.end)


def _digits_by_dim(places: Table) -> tuple[Digits, ...] | None:
    found = find_iota(places)
    if found is None:
        return None
    sizes, order = found
    return _cut([Digit(math.prod(sizes[d + 1 :]), sizes[d]) for d in order], places.shape)


def _cut(digits: Iterable[Digit], dims: Sequence[int]) -> tuple[Digits, ...] | None:
    """Digits cut where a dim ends inside, by dim; None for a dim that does not end evenly.

    >>> [[tuple(digit) for digit in dim] for dim in _cut([Digit(4, 2), Digit(1, 4)], (4, 2))]
    [[(4, 2), (2, 2)], [(1, 2)]]
    >>> _cut([Digit(1, 2), Digit(2, 3)], (3, 2)) is None
    True
    """
    found: list[Digits] = []
    waiting = iter(digits)
    stride, left = 1, 1
    for dim in dims:
        parts: list[Digit] = []
        while dim > 1:
            if left == 1:
                stride, left = next(waiting)
            size = math.gcd(dim, left)
            # Neither ends where the other does, so no cut makes both of them whole axes.
            if size < min(dim, left):
                return None
            dim, left = dim // size, left // size
            parts.append(Digit(stride * left, size))
        found.append(tuple(parts))
    return tuple(found)
