"""Two shardings as one grid of device axes: the smallest axes in which both can be written.

Floor: reshard.  Knows device orders and tile counts; nothing of sizes, steps or prices.

A state lists for each dim the axes that split it, major first; over an axis in no dim the value is replicated.  Axes
are as small as the two shardings ask for: 8 devices as [2,4] and [4,2] give axes 2, 2, 2.  Where no common grid exists
(6 devices as [2,3] and [3,2], or an order that is no transposed grid) there are no axes, and only a piecewise plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np

from hlosharding.reshard.layout import Dims, Table
from hlosharding.sharding import HloSharding, find_iota
from hlosharding.spmd import Groups

Axes = tuple[int, ...]
"""Numbers of axes, the first is the major one."""

REPLICATED, MANUAL, UNREDUCED = "replicated", "manual", "unreduced"


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The common grid of a source and a target."""

    ways: Dims
    """Devices along each axis."""
    coordinates: Table
    """[device, axis]"""
    source: tuple[Axes, ...]
    target: tuple[Axes, ...]
    partial_axes: Axes
    """Axes over which the source is partial; the target has it whole."""
    manual_axes: Axes
    """Axes of manual groups, or over which both are partial: nothing moves along them."""
    _products: dict[Axes, int] = field(default_factory=dict, init=False, repr=False)
    _positions: dict[Axes, Table] = field(default_factory=dict, init=False, repr=False)
    _groups: dict[Axes, Groups] = field(default_factory=dict, init=False, repr=False)

    @property
    def num_devices(self) -> int:
        return len(self.coordinates)

    def product(self, axes: Axes) -> int:
        """Devices along several axes."""
        found = self._products.get(axes)
        if found is None:
            found = self._products[axes] = math.prod(self.ways[a] for a in axes)
        return found

    def replicated(self, dims: tuple[Axes, ...]) -> Axes:
        """Axes in no dim, and not of manual groups."""
        used = {a for axes in dims for a in axes} | set(self.manual_axes)
        return tuple(a for a in range(len(self.ways)) if a not in used)

    def position(self, axes: Axes) -> Table:
        """[device]: number along several axes, the first is the major one."""
        found = self._positions.get(axes)
        if found is None:
            found = np.zeros(self.num_devices, np.int64)
            for a in axes:
                found = found * self.ways[a] + self.coordinates[:, a]
            found.flags.writeable = False
            self._positions[axes] = found
        return found

    def groups(self, axes: Axes) -> Groups:
        """Devices that differ along `axes` only, in the order of those axes."""
        found = self._groups.get(axes)
        if found is None:
            rest = tuple(a for a in range(len(self.ways)) if a not in axes)
            order = np.lexsort((self.position(axes), self.position(rest)))
            found = self._groups[axes] = tuple(map(tuple, order.reshape(-1, self.product(axes)).tolist()))
        return found


@lru_cache(maxsize=16384)
def common_grid(source: HloSharding, target: HloSharding, rank: int, num_devices: int) -> Grid | None:
    """The grid of two leaf shardings, or None where there is none.

    >>> a, b = HloSharding.parse("{devices=[2,4]<=[8]}"), HloSharding.parse("{devices=[4,2]<=[8]}")
    >>> grid = common_grid(a, b, 2, 8)
    >>> grid.ways, grid.source, grid.target
    ((2, 2, 2), ((0,), (1, 2)), ((0, 1), (2,)))
    >>> common_grid(HloSharding.parse("{devices=[2,3]<=[6]}"), HloSharding.parse("{devices=[3,2]<=[6]}"), 2, 6) is None
    True
    """
    first, last = _Roles.of(source, rank, num_devices), _Roles.of(target, rank, num_devices)
    if first is None or last is None:
        return None
    found = _factored(first, last)
    if found is None:
        # Copies have no order of their own; in normal form they are sorted by device, which may hide the grid.
        found = _factored(first.sorted_by(last), last)
    return _as_grid(found, rank) if found is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class _Roles:
    """A tile assignment whose dims are named by what they split: a data dim's number, or a subgroup's kind."""

    devices: Table
    roles: tuple[int | str, ...]

    @classmethod
    def of(cls, sharding: HloSharding, rank: int, num_devices: int) -> _Roles | None:
        """None for what is no tile assignment of all devices."""
        if sharding.kind in (REPLICATED, UNREDUCED):
            return cls(np.arange(num_devices), (sharding.kind,))
        if sharding.kind != "tiled" or sharding.num_devices != num_devices:
            return None
        return cls(sharding.tiles.array, (*range(rank), *sharding.subgroup_types))

    def place(self) -> Table:
        """[device]: where it stands in the tile assignment, counted through."""
        found = np.empty(self.devices.size, np.int64)
        found[self.devices.ravel()] = np.arange(self.devices.size)
        return found

    def sorted_by(self, other: _Roles) -> _Roles:
        """The same layout, copies (and manual groups, and partial sums) numbered as they occur in `other`."""
        place, devices = other.place(), self.devices
        for dim, role in enumerate(self.roles):
            if role in (MANUAL, UNREDUCED):
                line = place[np.moveaxis(devices, dim, -1).reshape(-1, devices.shape[dim])[0]]
                devices = np.take(devices, np.argsort(line), dim)
            elif role == REPLICATED:
                devices = np.take_along_axis(devices, np.argsort(place[devices], dim), dim)
        return _Roles(devices, self.roles)

    def made_of(self, axes: Axes, ways: Dims) -> dict[int | str, Axes]:
        """The axes, in order, that make up each dim of the tile assignment."""
        found: dict[int | str, Axes] = {}
        left = iter(axes)
        for role, count in zip(self.roles, self.devices.shape, strict=True):
            mine: list[int] = []
            while count > 1:
                mine.append(next(left))
                count //= ways[mine[-1]]
            found[role] = tuple(mine)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Factored:
    """Two tile assignments written in common axes."""

    ways: Dims
    devices: Table
    """In source order, all axes as dims."""
    source: dict[int | str, Axes]
    target: dict[int | str, Axes]


def _factored(source: _Roles, target: _Roles) -> _Factored | None:
    """The axes of which both tile assignments are made; None where there are none.

    `{devices=[2,4]<=[8]}` to `{devices=[4,2]<=[8]}`:

        the target's devices, as the source counts them   0 1 2 3 4 5 6 7: one digit of 8, not transposed
        the source's dims [2,4] cut that digit            into 2 x 4, at stride 4
        the target's dims [4,2] cut it                    into 4 x 2, at stride 2
        so the axes are                                   8 = 2 x 2 x 2, with strides 4, 2, 1
        in them, the source is                            [2,4] = (0), (1,2)
        and the target                                    [4,2] = (0,1), (2)

    With the target `{devices=[4,2]<=[2,4]T(1,0)}` there are two digits, 2 and 4, which the target lists in the order
    (1, 0): nothing cuts them, they are the axes.
    """
    target = target.sorted_by(source)
    iota = find_iota(source.place()[target.devices])
    if iota is None:
        return None
    digits, permutation = iota
    cuts = _cuts(digits, source.devices.shape)
    cuts_by_target = _cuts(tuple(digits[p] for p in permutation), target.devices.shape)
    if cuts is None or cuts_by_target is None:
        return None
    for place, strides in cuts_by_target.items():
        cuts.setdefault(permutation[place], []).extend(strides)
    parts = [_parts(ways, cuts.get(digit, [])) for digit, ways in enumerate(digits)]
    if any(part is None for part in parts):
        return None
    ways = tuple(w for part in parts if part for w in part)
    numbers = iter(range(len(ways)))
    axes_of_digit = [[next(numbers) for _ in part or ()] for part in parts]
    in_target = tuple(axis for digit in permutation for axis in axes_of_digit[digit])
    return _Factored(
        ways,
        source.devices.reshape(ways or (1,)),
        source.made_of(tuple(range(len(ways))), ways),
        target.made_of(in_target, ways),
    )


def _cuts(digits: Dims, dims: Dims) -> dict[int, list[int]] | None:
    """The strides at which `dims` cut digits: digit -> strides in it.  None if a dim ends unevenly in a digit.

    >>> _cuts((8,), (2, 4)), _cuts((2, 4), (4, 2)), _cuts((2, 3), (3, 2))
    ({0: [4]}, {1: [2]}, None)
    """
    strides = [math.prod(digits[i + 1 :]) for i in range(len(digits))]
    found: dict[int, list[int]] = {}
    for i in range(1, len(dims)):
        end = math.prod(dims[i:])
        for digit, (ways, stride) in enumerate(zip(digits, strides, strict=True)):
            if stride < end < stride * ways:
                if end % stride or ways % (end // stride):
                    return None
                found.setdefault(digit, []).append(end // stride)
    return found


def _parts(ways: int, strides: list[int]) -> list[int] | None:
    """A digit cut at some strides, major part first; None where no stride divides the next.

    >>> _parts(8, [4, 2]), _parts(6, [2, 3]), _parts(6, [])
    ([2, 2, 2], None, [6])
    """
    chain = list(pairwise(sorted({1, ways, *strides})))
    if any(large % small for small, large in chain):
        return None
    return [large // small for small, large in reversed(chain)]


def _as_grid(found: _Factored, rank: int) -> Grid | None:
    """The grid; None where manual groups differ, or the target is partial where the source is not."""
    source, target = found.source, found.target
    manual = set(source.get(MANUAL, ()))
    stays_partial = set(target.get(UNREDUCED, ()))
    if manual != set(target.get(MANUAL, ())) or not stays_partial <= set(source.get(UNREDUCED, ())):
        return None
    fixed = manual | stays_partial
    return Grid(
        found.ways,
        _coordinates(found),
        tuple(source.get(d, ()) for d in range(rank)),
        tuple(target.get(d, ()) for d in range(rank)),
        tuple(a for a in source.get(UNREDUCED, ()) if a not in fixed),
        tuple(sorted(fixed)),
    )


def _coordinates(found: _Factored) -> Table:
    """[device, axis]"""
    coordinates = np.empty((found.devices.size, len(found.ways)), np.int64)
    if found.ways:
        places = np.unravel_index(np.arange(found.devices.size), found.ways)
        coordinates[found.devices.ravel()] = np.stack(places, axis=1)
    return coordinates
