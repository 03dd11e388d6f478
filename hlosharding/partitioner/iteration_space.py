"""The algebra of iteration spaces: one sharding over the factors of an op says how all its operands and results are
sharded.

Floor: partitioner.  Pure algebra on HloShardings; knows no instructions and no prices.  A sharding of the iteration
space has one data dim per factor.  `lift` makes one from an operand's sharding, `project` makes an operand's sharding
from one, and `project_result` marks partial results as unreduced.

    dot, m k, k n -> m n                  factors (m, k, n) are numbers 0, 1, 2
    lhs sharded [2,4]<=[8]                lifted by its dims (0,), (1,):      space [2,4,1]<=[8]
    rhs of that space                     projected to its dims (1,), (2,):   [4,1,2]<=[2,4]T(1,0), 2 copies
    result                                projected to (0,), (2,), k split:   [2,1,4]<=[8], 4 partial sums each
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

    >>> str(lift(HloSharding.parse("{devices=[2,4]<=[8]}"), ((0,), (1,)), 3))
    '{devices=[2,4,1]<=[8]}'
    """
    if sharding.kind != "tiled" or not num_factors:
        return REPLICATED
    sharding = without_partials(sharding)
    if sharding.kind != "tiled":
        return REPLICATED
    # A dim of several factors is left whole, for its tiles could cut through the minor ones; who may split it hands in
    # the major one alone (`factors.factor_roles.major_dims`).
    source = [d for d, factors in enumerate(dims) if len(factors) == 1]
    return along_dims(sharding, tuple(source), tuple(dims[d][0] for d in source), num_factors).meaning


@lru_cache(maxsize=1 << 16)
def project(space: HloSharding, dims: tuple[Dims, ...]) -> HloSharding:
    """The sharding of an operand under an iteration-space sharding: factors it does not carry become replication.

    >>> str(project(HloSharding.parse("{devices=[2,4,1]<=[8]}"), ((1,), (2,))))
    '{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}'
    """
    if space.kind != "tiled" or not dims:
        return REPLICATED
    target = [d for d, factors in enumerate(dims) if len(factors) == 1]
    return along_dims(space, tuple(dims[d][0] for d in target), tuple(target), len(dims)).meaning


@lru_cache(maxsize=1 << 16)
def project_result(space: HloSharding, dims: tuple[Dims, ...], deferred: Dims) -> HloSharding:
    """As `project`, but devices that differ only along the factors `deferred` hold partial results (unreduced).

    >>> str(project_result(HloSharding.parse("{devices=[2,4,1]<=[8]}"), ((0,), (2,)), (1,)))
    '{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}'
    """
    parts = int(np.prod([space.data_dims[f] for f in deferred])) if space.kind == "tiled" else 1
    if parts == 1:
        return project(space, dims)
    grid = space.tiles.array.reshape((*space.data_dims, -1))
    kept = [factors[0] for factors in dims if len(factors) == 1]
    rest = [f for f in range(len(space.data_dims)) if f not in kept and f not in deferred]
    grid = grid.transpose([*kept, *deferred, *rest, grid.ndim - 1])
    factor = iter(kept)
    data = tuple(space.data_dims[next(factor)] if len(factors) == 1 else 1 for factors in dims)
    # One spelling: who has which part says nothing of their sum, and sums in the same groups can be added at once.
    tiles = np.sort(grid.reshape((*data, parts, -1)))
    tiles = np.take_along_axis(tiles, np.argsort(tiles[..., :1], axis=-2), axis=-2)
    return HloSharding.subgroup(tiles, ("unreduced", "replicated")).meaning


def sum_of_parts(sharding: HloSharding, operand: tuple[Dims, ...], result: tuple[Dims, ...], num: int) -> HloSharding:
    """How the result of an op of `num` factors lies that takes an operand's tiles as they are: as partial results,
    where a factor is split that the result does not have.

    >>> rows = HloSharding.parse("{devices=[2,4]<=[8]}")
    >>> str(sum_of_parts(rows, ((0,), (1,)), ((0,),), 2))
    '{devices=[2,4]<=[8] last_tile_dims={unreduced}}'
    """
    space = lift(sharding, operand, num)
    kept = {factor for place in result for factor in place}
    return project_result(space, result, tuple(f for f, w in enumerate(space.data_dims) if w > 1 and f not in kept))


@lru_cache(maxsize=1 << 16)
def mirror(sharding: HloSharding, dims: Dims) -> HloSharding:
    """The tiles in opposite order along `dims`."""
    return reverse_sharding(sharding, dims).meaning if sharding.kind == "tiled" and dims else sharding


@lru_cache(maxsize=1 << 16)
def untile(space: HloSharding, factors: Dims) -> HloSharding:
    """The iteration space with some factors whole."""
    return replicate_on_dims(space, factors).meaning if space.kind == "tiled" and factors else space


def as_compared(sharding: HloSharding | None) -> HloSharding:
    """A sharding as the partitioner compares them: one spelling; nothing known means replicated.

    So does one device: what it alone would hold, all compute, and nobody has to send it on.
    """
    if sharding is None or sharding.is_unknown() or sharding.is_maximal():
        return REPLICATED
    return sharding.meaning
