"""Many splits of one op as arrays: those given, and all that put each device axis on one factor or on none.

Floor: partitioner.  Knows which device computes which tile under each split; no prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hlosharding.partitioner.factors.device_axes import DeviceAxes, axes_of
from hlosharding.sharding import REPLICATED, HloSharding, TileAssignment, tile_indices

Table = npt.NDArray[np.int64]
Axes = tuple[int, ...]

_MOST = 2048
"""Splits by axes of one op; where there would be more, what is claimed must do."""


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """Splits of one iteration space."""

    num_tiles: Table
    """[split, factor]"""
    index: Table
    """[split, device, factor]: which tile a device computes."""
    space: Callable[[int], HloSharding]
    """The sharding of the iteration space that a split is."""

    def __len__(self) -> int:
        return len(self.num_tiles)

    @classmethod
    def of(cls, spaces: Sequence[HloSharding], num_factors: int, num_devices: int) -> Splits:
        """Those given."""
        whole = (1,) * num_factors
        num_tiles = np.array([s.data_dims if s.kind == "tiled" else whole for s in spaces], np.int64)
        index = np.stack([tile_indices(space, num_factors, num_devices) for space in spaces])
        return cls(num_tiles, index, spaces.__getitem__)


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
    tilings = [space.tiles for space in split]
    if mesh is not None and mesh.num_elements == tilings[0].num_elements:
        tilings.insert(0, mesh)
    axes = axes_of(tilings)
    found = _enumerated(axes, num_factors, may_be_split) if axes is not None else None
    return _as_arrays(axes, found) if axes is not None and found else None


def _enumerated(
    axes: DeviceAxes, num_factors: int, may_be_split: Callable[[int, int], bool]
) -> list[tuple[Axes, ...]] | None:
    """Per split the axes of each factor, major first; None for too many."""
    largest = math.prod(axes.sizes)
    allowed = [[n for n in range(2, largest + 1) if not largest % n and may_be_split(f, n)] for f in range(num_factors)]
    found: dict[tuple[Axes, ...], None] = {}
    for order in axes.orders:
        partial: list[tuple[Axes, ...]] = [((),) * num_factors]
        for axis in order:
            partial += [
                (*split[:f], (*split[f], axis), *split[f + 1 :])
                for split in partial
                for f in range(num_factors)
                if allowed[f] and (math.prod(axes.sizes[a] for a in split[f]) * axes.sizes[axis]) <= allowed[f][-1]
            ]
            if len(partial) > _MOST:
                return None
        legal = (s for s in partial if all(_is_legal(axes, parts, allowed[f]) for f, parts in enumerate(s)))
        found.update(dict.fromkeys(legal))
    return list(found)


def _is_legal(axes: DeviceAxes, parts: Axes, allowed: Sequence[int]) -> bool:
    return not parts or math.prod(axes.sizes[a] for a in parts) in allowed


def _as_arrays(axes: DeviceAxes, splits: Sequence[tuple[Axes, ...]]) -> Splits:
    coordinates, numbers = axes.coordinates(), dict[Axes, int]()
    options = np.array([[numbers.setdefault(parts, len(numbers)) for parts in split] for split in splits], np.int64)
    num_tiles = np.array([math.prod(axes.sizes[a] for a in parts) for parts in numbers], np.int64)
    index = np.stack([_index(axes, coordinates, parts) for parts in numbers])
    return Splits(num_tiles[options], index[options].transpose(0, 2, 1), lambda n: _space(axes, splits[n]))


def _index(axes: DeviceAxes, coordinates: Table, parts: Axes) -> Table:
    """[device]: number along several axes, the first is the major one."""
    found = np.zeros(len(coordinates), np.int64)
    for axis in parts:
        found = found * axes.sizes[axis] + coordinates[:, axis]
    return found


def _space(axes: DeviceAxes, split: tuple[Axes, ...]) -> HloSharding:
    used = [axis for parts in split for axis in parts]
    if not used:
        return REPLICATED
    rest = [axis for axis in range(len(axes.sizes)) if axis not in used]
    grid = np.array(axes.devices).reshape(axes.sizes).transpose([*used, *rest])
    tiles = [math.prod(axes.sizes[a] for a in parts) for parts in split]
    return HloSharding.partial_tile(grid.reshape((*tiles, -1))).meaning
