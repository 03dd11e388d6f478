"""An op's iteration space and its shardings: one tiling over the factors of a signature says where everything lies.

Floor: partitioner.  Pure algebra on HloShardings; knows no instructions and no prices.  A sharding of the iteration
space has one data dim per factor.  `lift` makes one from an operand's sharding, `project` goes back, and
`project_result` marks what is still to be reduced.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hlosharding.sharding import (
    REPLICATED,
    HloSharding,
    along_dims,
    replicate_on_dims,
    reverse_sharding,
    without_partials,
)

Dims = tuple[int, ...]


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
def project_result(space: HloSharding, dims: tuple[Dims, ...], deferred: Dims) -> HloSharding:
    """As `project`, but devices that differ only along the factors `deferred` hold partial results (unreduced)."""
    parts = int(np.prod([space.data_dims[f] for f in deferred])) if space.kind == "tiled" else 1
    if parts == 1:
        return project(space, dims)
    grid = space.tiles.array.reshape((*space.data_dims, -1))
    kept = [factors[0] for factors in dims if len(factors) == 1]
    rest = [f for f in range(len(space.data_dims)) if f not in kept and f not in deferred]
    grid = grid.transpose([*kept, *deferred, *rest, grid.ndim - 1])
    ways = iter(kept)
    data = tuple(space.data_dims[next(ways)] if len(factors) == 1 else 1 for factors in dims)
    tiles = grid.reshape((*data, parts, -1))
    return HloSharding.subgroup(tiles, ("unreduced", "replicated")).meaning


@lru_cache(maxsize=1 << 16)
def mirror(sharding: HloSharding, dims: Dims) -> HloSharding:
    """The tiles in opposite order along `dims`."""
    return reverse_sharding(sharding, dims).meaning if sharding.kind == "tiled" and dims else sharding


@lru_cache(maxsize=1 << 16)
def untile(space: HloSharding, factors: Dims) -> HloSharding:
    """The iteration space with some factors whole."""
    return replicate_on_dims(space, factors).meaning if space.kind == "tiled" and factors else space


def leaf(sharding: HloSharding | None) -> HloSharding:
    """A sharding as the partitioner compares them: one spelling; nothing known means replicated.

    So does one device: what it alone would hold, all compute, and nobody has to send it on.
    """
    if sharding is None or sharding.is_unknown() or sharding.is_maximal():
        return REPLICATED
    return sharding.meaning
