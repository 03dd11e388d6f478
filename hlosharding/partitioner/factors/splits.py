"""Many splits of one op as arrays: those given, and all that put each device axis on one factor or on none.

Floor: partitioner.  Knows which device computes which tile under each split; no prices, and no sizes: ops with as many
factors share one table, and what was worked out of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from hlosharding.errors import ShardingError
from hlosharding.sharding import REPLICATED, DeviceGrid, HloSharding, TileAssignment, ends_of, tile_indices

Dims = tuple[int, ...]


@dataclass(frozen=True)
class DeviceAxes(DeviceGrid):
    """Axes by their sizes, and the orders in which tilings take them."""

    orders: tuple[Dims, ...]
    """Each a permutation of the axes; the first is the identity."""


@lru_cache(maxsize=1 << 12)
def axes_of(tilings: tuple[TileAssignment, ...]) -> DeviceAxes | None:
    """The axes that these tilings of all devices are made of, a mesh the first of them; None where there are none.

    >>> mesh, other = TileAssignment.from_iota((2, 4)), TileAssignment.from_iota((4, 2), (2, 4), (1, 0))
    >>> axes_of((mesh, other)).sizes, axes_of((mesh, other)).orders
    ((2, 4), ((0, 1), (1, 0)))
    >>> axes_of((mesh, TileAssignment.from_iota((4, 2)))).sizes
    (2, 2, 2)
    """
    # Places count in the order of the first tiling that lists its devices: by their numbers it would be made of no
    # digits.
    devices = next((t.flat for t in tilings if t.iota is None), tuple(range(tilings[0].num_elements)))
    whole = DeviceGrid((len(devices),), devices)
    digits = []
    for tiling in tilings:
        found = whole.digits_of(tiling.array)
        if found is None:
            return None
        digits.append(tuple(chain(*found)))
    grid = whole.cut_at(ends_of(chain(*digits)))
    if grid is None:
        return None
    orders = [tuple(range(len(grid.sizes))), *map(grid.axes_within, digits)]
    return DeviceAxes(grid.sizes, devices, tuple(dict.fromkeys(orders)))


Table = npt.NDArray[np.int64]
Axes = tuple[int, ...]

_MOST = 2048
"""Splits by axes of one op; where there would be more, what is claimed must do."""
_SMALL = 2048
"""Tiles of a factor, over all splits and devices, in a small table."""
_MOST_ENDS = 128
"""Dims that a small table remembers where tiles begin and end for."""


@dataclass(frozen=True, eq=False)
class Splits:
    """Splits of one iteration space."""

    num_tiles: Table
    """[split, factor]"""
    index: Table
    """[split, device, factor]: which tile a device computes."""
    space: Callable[[int], HloSharding]
    """The sharding of the iteration space that a split is."""
    _ends: dict[tuple[int, int, bool], tuple[Table, Table]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.num_tiles)

    @classmethod
    def of(cls, spaces: Sequence[HloSharding], num_factors: int, num_devices: int) -> Splits:
        """Those given."""
        whole = (1,) * num_factors
        num_tiles = np.array([s.data_dims if s.kind == "tiled" else whole for s in spaces], np.int64)
        index = np.stack([tile_indices(space, num_factors, num_devices) for space in spaces])
        return cls(num_tiles, index, spaces.__getitem__)

    def row(self, space: HloSharding) -> int | None:
        """The number of a split; None where it is not among these."""
        # By its tiles, for of most rows the sharding is never made (`_as_arrays`).
        return self._rows.get(tile_indices(space, self.index.shape[2], self.index.shape[1]).tobytes())

    @cached_property
    def _rows(self) -> dict[bytes, int]:
        return {index.tobytes(): number for number, index in enumerate(self.index)}

    def ends(self, factor: int, size: int, *, reverse: bool) -> tuple[Table, Table]:
        """[split, device]: where a device's tile of a dim of that size, split as the factor is, begins and ends.

        `reverse`: the first tile is the last of the dim.
        """
        known = self._ends.get((factor, size, reverse))
        if known is None:
            tiles, index = self.num_tiles[:, factor, None], self.index[:, :, factor]
            tile = -(-size // tiles)
            start = np.minimum((tiles - 1 - index if reverse else index) * tile, size)
            known = start, np.minimum(start + tile, size)
            # All ops of as many factors share a table that outlives them (`_all_splits`): what it remembers is bounded.
            if index.size <= _SMALL and len(self._ends) < _MOST_ENDS:
                self._ends[factor, size, reverse] = known
        return known


def splits_by_axes(
    spaces: Sequence[HloSharding],
    mesh: TileAssignment | None,
    num_factors: int,
    may_be_split: Callable[[int, int], bool],
) -> Splits | None:
    """All splits by the axes of the mesh, cut where the given ones cut them; None where these are not made of axes.

    `mesh`: its devices, a dim for each axis; `may_be_split`: may this factor be split so often?
    """
    split = [space for space in spaces if space.kind == "tiled"]
    if not split or any(set(space.subgroup_types) - {"replicated"} for space in split):
        return None
    axes = _axes_either_way(tuple(dict.fromkeys([space.tiles for space in split])), mesh)
    if axes is None:
        return None
    return _splits_along(axes, num_factors, may_be_split)


@lru_cache(maxsize=1 << 12)
def _axes_either_way(tilings: tuple[TileAssignment, ...], mesh: TileAssignment | None) -> DeviceAxes | None:
    """Those of the mesh and the tilings, whose dims are taken from the last on, too: the axes of one dim may join those
    of another on either side."""
    first = (mesh,) if mesh is not None and mesh.num_elements == tilings[0].num_elements else ()
    turned = [tiling.transpose(range(len(tiling.dims))[::-1]) for tiling in tilings]
    return axes_of(tuple(dict.fromkeys((*first, *tilings, *turned))))


def splits_of_mesh(mesh: TileAssignment, num_factors: int, may_be_split: Callable[[int, int], bool]) -> Splits:
    """All splits by the axes of the mesh: each on one factor, the outermost first, or on none.

    Raises ShardingError where there would be too many to look at.
    """
    axes = axes_of((mesh,))
    found = None if axes is None else _splits_along(axes, num_factors, may_be_split)
    if found is None:
        what = f"there are more than {_MOST} ways to put the axes of a mesh of {mesh.dims} on {num_factors} dims"
        raise ShardingError(what, remedy="take a mesh of fewer axes")
    return found


def _splits_along(axes: DeviceAxes, num_factors: int, may_be_split: Callable[[int, int], bool]) -> Splits | None:
    """All of them; None for too many."""
    counts = _counts(axes.sizes)
    return _all_splits(axes, tuple(tuple(n for n in counts if may_be_split(f, n)) for f in range(num_factors)))


@lru_cache(maxsize=1 << 10)
def _counts(sizes: Axes) -> tuple[int, ...]:
    """How often some of the axes together can split a dim."""
    found = {1}
    for size in sizes:
        found |= {n * size for n in found}
    return tuple(sorted(found - {1}))


@lru_cache(maxsize=1 << 9)
def _all_splits(axes: DeviceAxes, allowed: tuple[tuple[int, ...], ...]) -> Splits | None:
    """`allowed`: per factor how often it may be split."""
    found = _enumerated(axes, allowed)
    return _as_arrays(axes, found) if found else None


def _enumerated(axes: DeviceAxes, allowed: Sequence[Sequence[int]]) -> list[tuple[Axes, ...]] | None:
    """Per split the axes of each factor, major first; None for too many."""
    num_factors, found = len(allowed), dict[tuple[Axes, ...], None]()
    for order in axes.orders:
        partial: list[tuple[Axes, ...]] = [((),) * num_factors]
        for axis in order:
            # The list is made before it is added: what stays as it was has the axis on no factor.
            partial += [
                (*split[:f], (*split[f], axis), *split[f + 1 :])
                for split in partial
                for f in range(num_factors)
                # A count that is not allowed may still grow into one that is (4 into 8, where 2 and 8 are), so only
                # what exceeds the largest is left out here.
                if allowed[f] and axes.product(split[f]) * axes.sizes[axis] <= allowed[f][-1]
            ]
            if len(partial) > _MOST:
                return None
        legal = (s for s in partial if all(_is_legal(axes, parts, allowed[f]) for f, parts in enumerate(s)))
        found.update(dict.fromkeys(legal))
    return list(found)


def _is_legal(axes: DeviceAxes, parts: Axes, allowed: Sequence[int]) -> bool:
    return not parts or axes.product(parts) in allowed


def _as_arrays(axes: DeviceAxes, splits: Sequence[tuple[Axes, ...]]) -> Splits:
    # All splits are made of few tuples of axes: tiles are worked out once for each, and looked up.
    numbers = dict[Axes, int]()
    options = np.array([[numbers.setdefault(parts, len(numbers)) for parts in split] for split in splits], np.int64)
    num_tiles = np.array([axes.product(parts) for parts in numbers], np.int64)
    index = np.array([axes.position(parts) for parts in numbers], np.int64).reshape(-1, math.prod(axes.sizes))
    space = cache(lambda number: _space(axes, splits[number]))
    return Splits(num_tiles[options], np.ascontiguousarray(index[options].transpose(0, 2, 1)), space)


def _space(axes: DeviceAxes, split: tuple[Axes, ...]) -> HloSharding:
    used = [axis for parts in split for axis in parts]
    if not used:
        return REPLICATED
    rest = [axis for axis in range(len(axes.sizes)) if axis not in used]
    grid = np.array(axes.devices).reshape(axes.sizes).transpose([*used, *rest])
    tiles = [axes.product(parts) for parts in split]
    return HloSharding.partial_tile(grid.reshape((*tiles, -1))).meaning
