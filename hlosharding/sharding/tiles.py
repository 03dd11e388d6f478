"""What each device holds under a sharding: its tile, where that starts, what is padding, whose partial sums meet.

Floor: sharding.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hlosharding.errors import ShardingError
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.subgroups import SubgroupType
from hlosharding.sharding.tile_assignment import Dims

REPLICATED = HloSharding.replicate()


@lru_cache(maxsize=1 << 16)
def tile_table(sharding: HloSharding, rank: int, num_devices: int) -> tuple[Dims, ...]:
    """Tile index of every device: entry [device][dim]; zeros where the sharding does not tile.

    >>> tile_table(HloSharding.parse("{devices=[1,2]1,0}"), 2, 2)
    ((0, 1), (0, 0))
    """
    return tuple(map(tuple, tile_indices(sharding, rank, num_devices).tolist()))


@lru_cache(maxsize=1 << 12)
def tile_indices(sharding: HloSharding, rank: int, num_devices: int) -> npt.NDArray[np.int64]:
    """`tile_table` as an array, which nobody may write to.

    >>> tile_indices(HloSharding.parse("{devices=[1,2]1,0}"), 2, 2).tolist()
    [[0, 1], [0, 0]]
    """
    if sharding.kind != "tiled":
        found = np.zeros((num_devices, rank), np.int64)
    else:
        place = np.full(num_devices, -1, np.int64)
        devices = sharding.tiles.array.ravel()
        place[devices[devices < num_devices]] = np.flatnonzero(devices < num_devices)
        if (place < 0).any():
            raise ShardingError(f"device {int(place.argmin())} holds no tile of {sharding}")
        index = np.unravel_index(place, sharding.tiles.dims)
        found = np.stack(index, axis=1).astype(np.int64)[:, : sharding.tiled_data_rank]
    found.setflags(write=False)
    return found


def offsets(sharding: HloSharding, dims: Dims, dim: int, num_devices: int) -> Dims:
    """First element of every device's tile along `dim`, before clamping to the dim's size."""
    step = sharding.tile_shape(dims)[dim]
    return tuple(index[dim] * step for index in tile_table(sharding, len(dims), num_devices))


@lru_cache(maxsize=1 << 16)
def without_partials(sharding: HloSharding) -> HloSharding:
    """The sharding once its partial results are reduced for all: unreduced becomes replicated."""
    if sharding.kind == "unreduced":
        return REPLICATED
    if sharding.kind != "tiled" or "unreduced" not in sharding.subgroup_types:
        return sharding
    rank = len(sharding.data_dims)
    tiles = sharding.tiles.array
    order = [d for d in range(tiles.ndim) if d < rank or sharding.subgroup_types[d - rank] != "manual"]
    if len(order) == tiles.ndim:
        return HloSharding.partial_tile(tiles.reshape((*sharding.data_dims, -1))).meaning
    manual = [d for d in range(rank, tiles.ndim) if d not in order]
    grid = tiles.transpose([*range(rank), *manual, *[d for d in order if d >= rank]])
    grid = grid.reshape((*sharding.data_dims, grid.shape[rank], -1))
    return HloSharding.subgroup(grid, ("manual", "replicated")).meaning


def copies_as_partials(sharding: HloSharding) -> HloSharding:
    """A sharding with partial results where this one has copies: what `without_partials` makes of it is this one.

    >>> str(copies_as_partials(HloSharding.parse("{devices=[2,2]<=[4] last_tile_dim_replicate}")))
    '{devices=[2,2]<=[4] last_tile_dims={unreduced}}'
    """
    if sharding.is_replicated():
        return HloSharding.unreduced()
    types: list[SubgroupType] = ["unreduced" if kind == "replicated" else kind for kind in sharding.subgroup_types]
    return HloSharding.subgroup(sharding.tiles, types) if types else sharding


@lru_cache(maxsize=1 << 12)
def stacked_partials(sharding: HloSharding) -> HloSharding:
    """A tiling of partial results stacked on a new first dim: each device holds its own.

    >>> str(stacked_partials(HloSharding.parse("{devices=[2,2]<=[4] last_tile_dims={unreduced}}")))
    '{devices=[2,2]<=[2,2]T(1,0)}'
    """
    dim = sharding.subgroup_dim("unreduced")
    assert dim is not None, "only partial results are stacked"
    tiles = np.moveaxis(sharding.tiles.array, dim, 0)
    return HloSharding.partial_tile(tiles.reshape((*tiles.shape[: len(sharding.data_dims) + 1], -1))).meaning


@lru_cache(maxsize=1 << 16)
def member_numbers(sharding: HloSharding, num_devices: int, kind: SubgroupType = "unreduced") -> Dims:
    """Every device's position in its subgroup of that kind: of a partial sharding, among the partial results."""
    if sharding.kind == kind:
        return tuple(range(num_devices))
    dim = sharding.subgroup_dim(kind)
    if dim is None:
        return (0,) * num_devices
    positions = np.indices(sharding.tiles.dims)[dim]
    out = np.zeros(num_devices, int)
    out[sharding.tiles.array.reshape(-1)] = positions.reshape(-1)
    return tuple(map(int, out))


@lru_cache(maxsize=1 << 16)
def partial_sum_groups(sharding: HloSharding, num_devices: int) -> tuple[Dims, ...]:
    """For a partial sharding: the groups of devices whose results are to be combined, in order of their pieces."""
    dim = sharding.subgroup_dim("unreduced") if sharding.kind == "tiled" else None
    if dim is None:
        return (tuple(range(num_devices)),)
    tiles = np.moveaxis(sharding.tiles.array, dim, -1)
    return tuple(tuple(map(int, row)) for row in tiles.reshape(-1, tiles.shape[-1]))


@lru_cache(maxsize=1 << 16)
def uneven_dims(sharding: HloSharding, dims: Dims) -> Dims:
    """Dims whose last tiles hold padding."""
    if sharding.kind != "tiled":
        return ()
    return tuple(d for d, (size, ways) in enumerate(zip(dims, sharding.data_dims, strict=True)) if size % ways)
