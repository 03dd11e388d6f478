"""Move tiles between dims: transpose, reverse, drop, insert, split, merge, replicate, project.

Floor: sharding.  Pure functions of interned values, memoised; they are named after XLA's hlo_sharding_util, and their
results are spelled as its are (an iota stays an iota where XLA keeps it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hlosharding.errors import ShardingError
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.memo import memoised
from hlosharding.sharding.subgroups import SubgroupType
from hlosharding.sharding.tile_assignment import TileAssignment


@memoised
def transpose_sharding(sharding: HloSharding, perm: Sequence[int]) -> HloSharding:
    """Result dim i is split as `sharding`'s dim perm[i]; `perm` lists the data dims, or all tile dims.

    >>> str(transpose_sharding(HloSharding.iota_tile((2, 4)), (1, 0)))
    '{devices=[4,2]<=[2,4]T(1,0)}'
    """
    if not sharding.is_tiled():
        return sharding
    rank, tiles = sharding.tiled_data_rank, sharding.tiles
    if len(perm) == rank:
        perm = (*perm, *range(rank, len(tiles.dims)))
    if len(perm) != len(tiles.dims) or sorted(perm[rank:]) != list(range(rank, len(tiles.dims))):
        raise ShardingError(f"{tuple(perm)} does not permute the dims of {sharding}")
    moved = tiles.transpose(perm)
    types: tuple[SubgroupType, ...] = tuple(sharding.subgroup_types[p - rank] for p in perm[rank:])
    if types == sharding.subgroup_types:
        return sharding.with_tiles(moved)
    return HloSharding.subgroup(moved, types, sharding.metadata)


@memoised
def transpose_with_collapsed_dims(
    sharding: HloSharding, source_to_target: Sequence[int], target_to_source: Sequence[int]
) -> HloSharding | None:
    """Carry dims to other places, -1 for a dim that the other side lacks; None if such a source dim is split.

    >>> str(transpose_with_collapsed_dims(HloSharding.iota_tile((2, 1)), (1, -1), (-1, 0)))
    '{devices=[1,2]<=[2]}'
    """
    if not sharding.is_tiled():
        return sharding
    rank, dims = sharding.tiled_data_rank, sharding.tiles.dims
    lost = [i for i, target in enumerate(source_to_target[:rank]) if target < 0]
    if any(dims[i] > 1 for i in lost):
        return None
    kept = [source for source in target_to_source if 0 <= source < rank]
    data = [dims[source] if source >= 0 else 1 for source in target_to_source if source < rank]
    perm = (*kept, *lost, *range(rank, len(dims)))
    return sharding.with_tiles(sharding.tiles.transpose(perm).reshape((*data, *dims[rank:])))


@memoised
def reverse_sharding(sharding: HloSharding, dims: Sequence[int]) -> HloSharding:
    """Tiles in opposite order along `dims`.

    >>> str(reverse_sharding(HloSharding.iota_tile((4,)), (0,)))
    '{devices=[4]3,2,1,0}'
    """
    if not sharding.is_tiled() or not dims:
        return sharding
    return sharding.with_tiles(TileAssignment.from_array(np.flip(sharding.tiles.array, tuple(set(dims)))))


@memoised
def remove_shape_dims(sharding: HloSharding, dims: Sequence[int]) -> HloSharding:
    """Without those dims, which must not be split.

    >>> str(remove_shape_dims(HloSharding.iota_tile((2, 1)), (1,)))
    '{devices=[2]<=[2]}'
    """
    if not sharding.is_tiled() or not dims:
        return sharding
    for dim in dims:
        if sharding.tiles.dims[dim] != 1:
            raise ShardingError(f"dim {dim} of {sharding} is split", remedy="replicate on it first")
    return sharding.with_tiles(sharding.tiles.reshape([n for i, n in enumerate(sharding.tiles.dims) if i not in dims]))


@memoised
def add_shape_dims(sharding: HloSharding, first: int, count: int) -> HloSharding:
    """With `count` unsplit dims inserted before dim `first`.

    >>> str(add_shape_dims(HloSharding.iota_tile((2,)), 0, 2))
    '{devices=[1,1,2]<=[2]}'
    """
    if not sharding.is_tiled() or not count:
        return sharding
    dims = sharding.tiles.dims
    return sharding.with_tiles(sharding.tiles.reshape((*dims[:first], *(1,) * count, *dims[first:])))


@memoised
def split_dimension(sharding: HloSharding, dim: int, parts: int) -> HloSharding:
    """Tile dim `dim` becomes two: `parts`, and the rest behind it.  Metadata is dropped, as in XLA.

    >>> str(split_dimension(HloSharding.iota_tile((8,)), 0, 2))
    '{devices=[2,4]<=[8]}'
    """
    dims = sharding.tiles.dims
    _check_data_dim(sharding, dim)
    if dims[dim] % parts:
        raise ShardingError(f"{parts} does not divide the {dims[dim]} tiles of dim {dim} of {sharding}")
    new_dims = (*dims[:dim], parts, dims[dim] // parts, *dims[dim + 1 :])
    return sharding.with_tiles(sharding.tiles.reshape(new_dims), ())


@memoised
def merge_dimension(sharding: HloSharding, dim: int) -> HloSharding:
    """Tile dims `dim` and `dim + 1` become one.  Metadata is dropped, as in XLA.

    >>> str(merge_dimension(HloSharding.iota_tile((2, 4)), 0))
    '{devices=[8]<=[8]}'
    """
    dims = sharding.tiles.dims
    _check_data_dim(sharding, dim + 1)
    new_dims = (*dims[:dim], dims[dim] * dims[dim + 1], *dims[dim + 2 :])
    return sharding.with_tiles(sharding.tiles.reshape(new_dims), ())


@memoised
def move_and_merge_tiles(sharding: HloSharding, source: int, target: int) -> HloSharding:
    """All tiles of dim `source` go to dim `target`, as its minor part.

    >>> str(move_and_merge_tiles(HloSharding.iota_tile((2, 2)), 0, 1))
    '{devices=[1,4]<=[2,2]T(1,0)}'
    """
    _check_data_dim(sharding, source)
    _check_data_dim(sharding, target)
    if source == target:
        raise ShardingError(f"dim {source} of {sharding} cannot be moved onto itself")
    dims = list(sharding.tiles.dims)
    dims.insert(target + 1, 1)
    perm = list(range(len(dims)))
    # The dim that was put in behind the target has shifted all that stand behind it by one.
    moved = source if source < target else source + 1
    perm[target + 1], perm[moved] = perm[moved], perm[target + 1]
    tiles = sharding.tiles.reshape(dims).transpose(perm)
    merged = [*tiles.dims[:target], tiles.dims[target] * tiles.dims[target + 1], *tiles.dims[target + 2 :]]
    return sharding.with_tiles(tiles.reshape(merged))


@memoised
def first_target_dim(
    dims: Sequence[int], sharding: HloSharding, source: int, allowed: Sequence[int] | None = None
) -> int | None:
    """The first other dim whose size all tiles of `source` and its own divide (GetFirstTargetDimToMoveShardingTiles).

    >>> first_target_dim((6, 8), HloSharding.iota_tile((2, 2)), 0)
    1
    """
    if len(dims) < 2 or dims[source] == 1 or not sharding.is_tiled() or sharding.tiles.dims[source] == 1:
        return None
    ways = sharding.data_dims
    for dim in range(len(dims)) if allowed is None else sorted(allowed):
        if dim != source and dims[dim] % (ways[source] * ways[dim]) == 0:
            return dim
    return None


@memoised
def reshape_to_tile_dimension(sharding: HloSharding, dim: int, dims: Sequence[int]) -> HloSharding:
    """All tiles of `dims` go to `dim`, which is one of them, so that neighbours stay close.

    >>> str(reshape_to_tile_dimension(HloSharding.iota_tile((2, 2)), 1, (0, 1)))
    '{devices=[1,4]<=[2,2]T(1,0)}'
    """
    if sharding.kind != "tiled" or dim not in dims:
        raise ShardingError(f"cannot gather the tiles of dims {tuple(dims)} of {sharding} on dim {dim}")
    old = sharding.tiles.dims
    others = [d for d in range(len(old)) if d in dims and d != dim]
    rest = [d for d in range(len(old)) if d not in dims and d != dim]
    new = [1 if d in others else n for d, n in enumerate(old)]
    new[dim] = old[dim] * math.prod(old[d] for d in others)
    tiles = sharding.tiles.transpose([*rest, dim, *others]).reshape(new)
    return HloSharding.tile(tiles, sharding.metadata)


@memoised
def replicate_on_dims(sharding: HloSharding, dims: Sequence[int]) -> HloSharding:
    """The tiles of those data dims become copies (PartiallyReplicateTiledShardingOnDims).

    >>> str(replicate_on_dims(HloSharding.iota_tile((2, 4)), (0,)))
    '{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}'
    """
    if not sharding.is_tiled():
        return sharding
    rank, tiles = sharding.tiled_data_rank, sharding.tiles
    valid = [d for d in dims if d < rank]
    copies = math.prod(tiles.dims[d] for d in valid)
    if copies == 1:
        return sharding
    # Not beside manual and unreduced subgroups, which stay when no dim is split any more.
    if copies == sharding.num_tiles and (not sharding.subgroup_types or sharding.replicate_on_last_tile_dim):
        return HloSharding.replicate(sharding.metadata)
    kept = [d for d in range(rank) if d not in valid]
    moved = transpose_sharding(sharding, [*kept, *(d for d in range(rank) if d in valid)]).tiles
    data = [1 if d in valid else n for d, n in enumerate(tiles.dims[:rank])]
    types: tuple[SubgroupType, ...] = sharding.subgroup_types
    if sharding.replicate_on_last_tile_dim:
        return sharding.with_tiles(moved.reshape((*data, copies * tiles.dims[-1])))
    moved = moved.reshape((*data, copies, *tiles.dims[rank:]))
    return HloSharding.subgroup(moved, ("replicated", *types), sharding.metadata)


@memoised
def replicate_on_all_dims_except(sharding: HloSharding, dims: Sequence[int]) -> HloSharding:
    """The tiles of all other data dims become copies.

    >>> str(replicate_on_all_dims_except(HloSharding.iota_tile((2, 4)), (0,)))
    '{devices=[2,1,4]<=[8] last_tile_dim_replicate}'
    """
    if not sharding.is_tiled():
        return sharding
    return replicate_on_dims(sharding, [d for d in range(sharding.tiled_data_rank) if d not in dims])


@memoised
def replicate_all_data_dims(sharding: HloSharding, rank: int = -1) -> HloSharding:
    """No data dim split; manual and unreduced subgroups stay, over `rank` data dims (-1: as many as now).

    >>> replicate_all_data_dims(HloSharding.iota_tile((2, 4))).is_replicated()
    True
    """
    if sharding.is_manual():
        return sharding
    if not sharding.subgroup_types or sharding.replicate_on_last_tile_dim:
        return HloSharding.replicate(sharding.metadata)
    result = replicate_on_all_dims_except(sharding, ())
    if rank < 0 or not result.is_tiled() or rank == result.tiled_data_rank:
        return result
    tiles = result.tiles.reshape((1,) * rank + result.tiles.dims[result.tiled_data_rank :])
    return result.with_tiles(tiles, ())


@memoised
def along_dims(sharding: HloSharding, source_dims: Sequence[int], target_dims: Sequence[int], rank: int) -> HloSharding:
    """The tiling of source_dims[i] at target_dims[i] of a result of `rank` dims, all else replicated.

    XLA: PropagateShardingAlongDimsAndReplicateOthers.

    >>> str(along_dims(HloSharding.iota_tile((2, 4)), (1,), (0,), 1))
    '{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}'
    """
    if not sharding.is_tiled():
        return sharding
    for dim in source_dims:
        _check_data_dim(sharding, dim)
    kept = replicate_on_all_dims_except(sharding, source_dims)
    if not kept.is_tiled():
        return kept
    dims, tiles = kept.tiles.dims, kept.tiles
    by_target = sorted(range(len(target_dims)), key=lambda i: target_dims[i])
    if sorted(range(len(source_dims)), key=lambda i: source_dims[i]) != by_target:
        rest = [d for d in range(len(dims)) if d not in source_dims]
        tiles = tiles.transpose([*(source_dims[i] for i in by_target), *rest])
    target = [1] * rank
    for source, to in zip(source_dims, target_dims, strict=True):
        target[to] = sharding.tiles.dims[source]
    return kept.with_tiles(tiles.reshape((*target, *dims[len(sharding.data_dims) :])))


def _check_data_dim(sharding: HloSharding, dim: int) -> None:
    if sharding.kind != "tiled" or not 0 <= dim < sharding.tiled_data_rank:
        raise ShardingError(f"{sharding} has no data dim {dim}")
