"""An op's iteration space and its shardings: one tiling over the factors of a signature says where everything lies.

Floor: partitioner.  Pure algebra on HloShardings; knows no instructions and no prices.  A sharding of the iteration
space has one data dim per factor.  `lift` makes one from an operand's sharding, `project` goes back, and
`project_result` marks what is still to be reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hlosharding.sharding import HloSharding, along_dims, replicate_on_dims, reverse_sharding

Dims = tuple[int, ...]
REPLICATED = HloSharding.replicate()


@lru_cache(maxsize=1 << 16)
def tile_table(sharding: HloSharding, rank: int, num_devices: int) -> tuple[Dims, ...]:
    """Tile index of every device: entry [device][dim]; zeros where the sharding does not tile.

    >>> tile_table(HloSharding.parse("{devices=[1,2]1,0}"), 2, 2)
    ((0, 1), (0, 0))
    """
    if sharding.kind != "tiled":
        return ((0,) * rank,) * num_devices
    return tuple(sharding.tile_index(device) for device in range(num_devices))


def offsets(sharding: HloSharding, dims: Dims, dim: int, num_devices: int) -> Dims:
    """First element of every device's tile along `dim`, before clamping to the dim's size."""
    step = sharding.tile_shape(dims)[dim]
    return tuple(index[dim] * step for index in tile_table(sharding, len(dims), num_devices))


@lru_cache(maxsize=1 << 16)
def lift(sharding: HloSharding, dims: tuple[Dims, ...], num_factors: int) -> HloSharding:
    """The iteration-space sharding that an operand's (or result's) sharding implies.

    `dims` names the factor of each dim (an empty tuple where it has none); other factors are not tiled.
    """
    if sharding.kind != "tiled" or not num_factors:
        return REPLICATED
    sharding = without_partials(sharding)
    if sharding.kind != "tiled":
        return REPLICATED
    source = [d for d, factors in enumerate(dims) if len(factors) == 1]
    return along_dims(sharding, tuple(source), tuple(dims[d][0] for d in source), num_factors).meaning


@lru_cache(maxsize=1 << 16)
def project(space: HloSharding, dims: tuple[Dims, ...]) -> HloSharding:
    """The sharding of an operand under an iteration-space sharding: factors it does not carry become replication."""
    if space.kind != "tiled" or not dims:
        return REPLICATED
    target = [d for d, factors in enumerate(dims) if len(factors) == 1]
    return along_dims(space, tuple(dims[d][0] for d in target), tuple(target), len(dims)).meaning


@lru_cache(maxsize=1 << 16)
def project_result(space: HloSharding, dims: tuple[Dims, ...], owed: Dims) -> HloSharding:
    """As `project`, but devices that differ only along the factors `owed` hold partial results (unreduced)."""
    parts = int(np.prod([space.data_dims[f] for f in owed])) if space.kind == "tiled" else 1
    if parts == 1:
        return project(space, dims)
    grid = space.tiles.array.reshape((*space.data_dims, -1))
    kept = [factors[0] for factors in dims if len(factors) == 1]
    rest = [f for f in range(len(space.data_dims)) if f not in kept and f not in owed]
    grid = grid.transpose([*kept, *owed, *rest, grid.ndim - 1])
    ways = iter(kept)
    data = tuple(space.data_dims[next(ways)] if len(factors) == 1 else 1 for factors in dims)
    tiles = grid.reshape((*data, parts, -1))
    return HloSharding.subgroup(tiles, ("unreduced", "replicated")).meaning


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


@lru_cache(maxsize=1 << 16)
def mirror(sharding: HloSharding, dims: Dims) -> HloSharding:
    """The tiles in opposite order along `dims`."""
    return reverse_sharding(sharding, dims).meaning if sharding.kind == "tiled" and dims else sharding


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
def untile(space: HloSharding, factors: Dims) -> HloSharding:
    """The iteration space with some factors whole."""
    return replicate_on_dims(space, factors).meaning if space.kind == "tiled" and factors else space


@lru_cache(maxsize=1 << 16)
def member_numbers(sharding: HloSharding, num_devices: int) -> Dims:
    """For a partial sharding: every device's position in its group of partial results."""
    if sharding.kind == "unreduced":
        return tuple(range(num_devices))
    dim = sharding.subgroup_dim("unreduced")
    if dim is None:
        return (0,) * num_devices
    positions = np.indices(sharding.tiles.dims)[dim]
    out = np.zeros(num_devices, int)
    out[sharding.tiles.array.reshape(-1)] = positions.reshape(-1)
    return tuple(map(int, out))


@lru_cache(maxsize=1 << 16)
def addend_groups(sharding: HloSharding, num_devices: int) -> tuple[Dims, ...]:
    """For a partial sharding: the groups of devices whose results are to be combined, in order of their pieces."""
    dim = sharding.subgroup_dim("unreduced") if sharding.kind == "tiled" else None
    if dim is None:
        return (tuple(range(num_devices)),)
    tiles = np.moveaxis(sharding.tiles.array, dim, -1)
    return tuple(tuple(map(int, row)) for row in tiles.reshape(-1, tiles.shape[-1]))


def local_shape_dims(sharding: HloSharding, dims: Sequence[int]) -> Dims:
    """Sizes of a tile (rounded up); the dims themselves where nothing is tiled."""
    return tuple(sharding.tile_shape(tuple(dims))) if sharding.kind == "tiled" else tuple(dims)


def leaf(sharding: HloSharding | None) -> HloSharding:
    """A sharding as the partitioner compares them: one spelling; nothing known means replicated.

    So does one device: what it alone would hold, all compute, and nobody has to send it on.
    """
    if sharding is None or sharding.is_unknown() or sharding.is_maximal():
        return REPLICATED
    return sharding.meaning


@lru_cache(maxsize=1 << 16)
def uneven_dims(sharding: HloSharding, dims: Dims) -> Dims:
    """Dims whose last tiles hold padding."""
    if sharding.kind != "tiled":
        return ()
    return tuple(d for d, (size, ways) in enumerate(zip(dims, sharding.data_dims, strict=True)) if size % ways)
