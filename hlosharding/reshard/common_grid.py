"""Two shardings as one grid of device axes: the smallest axes in which both can be written.

Floor: reshard.  Knows device orders and tile counts; nothing of sizes, steps or prices.

A state lists for each dim the axes that split it, major first; over an axis in no dim the value is repeated.  Axes
are as small as the two shardings ask for: 8 devices as [2,4] and [4,2] give axes 2, 2, 2.  Where no common grid exists
(6 devices as [2,3] and [3,2], or an order that is no transposed grid) there are no axes, and only a direct plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hlosharding.sharding import HloSharding, TileAssignment

Dims = tuple[int, ...]
Axes = tuple[int, ...]

REPEATED, WORLD, ADDEND = "replicated", "manual", "unreduced"


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The common grid of a source and a target."""

    ways: Dims
    """Devices along each axis."""
    coordinates: npt.NDArray[np.int64]
    """[device, axis]"""
    source: tuple[Axes, ...]
    target: tuple[Axes, ...]
    addends: Axes
    """Axes over which the source is partial; the target has it whole."""
    worlds: Axes
    """Axes of manual groups, or over which both are partial: nothing moves along them."""
    _products: dict[Axes, int] = field(default_factory=dict, init=False, repr=False)
    _positions: dict[Axes, npt.NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    @property
    def num_devices(self) -> int:
        return len(self.coordinates)

    def product(self, axes: Axes) -> int:
        """Devices along several axes."""
        found = self._products.get(axes)
        if found is None:
            found = self._products[axes] = math.prod(self.ways[a] for a in axes)
        return found

    def repeated(self, dims: tuple[Axes, ...]) -> Axes:
        """Axes in no dim, and not of manual groups."""
        used = {a for axes in dims for a in axes} | set(self.worlds)
        return tuple(a for a in range(len(self.ways)) if a not in used)

    def position(self, axes: Axes) -> npt.NDArray[np.int64]:
        """[device]: number along several axes, the first is the major one."""
        found = self._positions.get(axes)
        if found is None:
            found = np.zeros(self.num_devices, np.int64)
            for a in axes:
                found = found * self.ways[a] + self.coordinates[:, a]
            found.flags.writeable = False
            self._positions[axes] = found
        return found

    def groups(self, axes: Axes) -> tuple[tuple[int, ...], ...]:
        """Devices that differ along `axes` only, in the order of those axes."""
        rest = tuple(a for a in range(len(self.ways)) if a not in axes)
        order = np.lexsort((self.position(axes), self.position(rest)))
        return tuple(map(tuple, order.reshape(-1, self.product(axes)).tolist()))


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
    ours, theirs = _roles(source, rank, num_devices), _roles(target, rank, num_devices)
    if ours is None or theirs is None:
        return None
    found = _factor(ours, theirs)
    if found is None:
        # Copies have no order of their own; in normal form they are sorted by device, which may hide the grid.
        found = _factor(_sorted_by(ours, theirs), theirs)
    return _as_grid(found, rank) if found is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class _Roles:
    """A tile assignment whose dims are named by what they split: a data dim's number, or a subgroup's kind."""

    devices: npt.NDArray[np.int64]
    roles: tuple[int | str, ...]


def _roles(sharding: HloSharding, rank: int, num_devices: int) -> _Roles | None:
    if sharding.kind in (REPEATED, ADDEND):
        return _Roles(np.arange(num_devices), (sharding.kind,))
    if sharding.kind != "tiled" or sharding.num_devices != num_devices:
        return None
    return _Roles(sharding.tiles.array, (*range(rank), *sharding.subgroup_types))


def _sorted_by(mine: _Roles, other: _Roles) -> _Roles:
    """The same layout, copies (and manual groups, and addends) numbered as they occur in `other`."""
    place = np.empty(other.devices.size, np.int64)
    place[other.devices.ravel()] = np.arange(other.devices.size)
    devices = mine.devices
    for dim, role in enumerate(mine.roles):
        if role in (WORLD, ADDEND):
            line = place[np.moveaxis(devices, dim, -1).reshape(-1, devices.shape[dim])[0]]
            devices = np.take(devices, np.argsort(line), dim)
        elif role == REPEATED:
            devices = np.take_along_axis(devices, np.argsort(place[devices], dim), dim)
    return _Roles(devices, mine.roles)


@dataclass(frozen=True, slots=True, eq=False)
class _Factored:
    ways: Dims
    devices: npt.NDArray[np.int64]
    """In source order, all axes as dims."""
    source: dict[int | str, Axes]
    target: dict[int | str, Axes]


def _factor(source: _Roles, target: _Roles) -> _Factored | None:
    target = _sorted_by(target, source)
    size = source.devices.size
    place = np.empty(size, np.int64)
    place[source.devices.ravel()] = np.arange(size)
    order = TileAssignment.from_flat((size,), place[target.devices.ravel()].tolist()).meaning.iota
    if order is None:
        return None
    digits, permutation = order.reshape_dims, order.transpose_perm
    moved = tuple(digits[p] for p in permutation)
    cuts = _cuts(digits, source.devices.shape), _cuts(moved, target.devices.shape)
    if cuts[0] is None or cuts[1] is None:
        return None
    parts: list[list[int]] = []
    for digit, ways in enumerate(digits):
        chain = sorted({1, ways, *cuts[0].get(digit, ()), *cuts[1].get(permutation.index(digit), ())})
        if any(big % small for small, big in pairwise(chain)):
            return None
        parts.append([big // small for small, big in reversed(list(pairwise(chain)))])
    numbers = iter(range(size))
    named = [[next(numbers) for _ in part] for part in parts]
    ways = tuple(w for part in parts for w in part)
    in_target = [axis for p in permutation for axis in named[p]]
    return _Factored(
        ways,
        source.devices.reshape(ways or (1,)),
        _assign(tuple(range(len(ways))), ways, source),
        _assign(tuple(in_target), ways, target),
    )


def _cuts(digits: Dims, dims: Dims) -> dict[int, list[int]] | None:
    """Where borders between `dims` fall inside digits: digit -> strides in it.  None if a border cuts none evenly."""
    strides = [math.prod(digits[i + 1 :]) for i in range(len(digits))]
    found: dict[int, list[int]] = {}
    for i in range(1, len(dims)):
        border = math.prod(dims[i:])
        for digit, (ways, stride) in enumerate(zip(digits, strides, strict=True)):
            if stride < border < stride * ways:
                if border % stride or ways % (border // stride):
                    return None
                found.setdefault(digit, []).append(border // stride)
    return found


def _assign(order: Axes, ways: Dims, layout: _Roles) -> dict[int | str, Axes]:
    """Which axes, in `order`, make up each dim of the tile assignment."""
    out: dict[int | str, Axes] = {}
    left = list(order)
    for role, count in zip(layout.roles, layout.devices.shape, strict=True):
        mine: list[int] = []
        while count > 1:
            mine.append(left.pop(0))
            count //= ways[mine[-1]]
        out[role] = tuple(mine)
    return out


def _as_grid(found: _Factored, rank: int) -> Grid | None:
    source, target = found.source, found.target
    worlds = set(source.get(WORLD, ()))
    if worlds != set(target.get(WORLD, ())):
        return None
    kept = set(target.get(ADDEND, ()))
    if not kept <= set(source.get(ADDEND, ())):
        return None
    worlds |= kept
    addends = tuple(a for a in source.get(ADDEND, ()) if a not in worlds)
    first = tuple(source.get(d, ()) for d in range(rank))
    last = tuple(target.get(d, ()) for d in range(rank))
    count = len(found.ways)
    coordinates = np.empty((found.devices.size, count), np.int64)
    coordinates[found.devices.ravel()] = (
        np.stack(np.unravel_index(np.arange(found.devices.size), found.devices.shape)[:count], axis=1)
        if count
        else np.zeros((found.devices.size, 0), np.int64)
    )
    return Grid(found.ways, coordinates, first, last, addends, tuple(sorted(worlds)))
