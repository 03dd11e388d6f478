"""Which of two shardings says more, and the one that says both.

Floor: sharding.  Follows XLA's IsShardingMoreSpecific, MergeSharding and IsSubTilingOrEqualSharding: propagation rests
on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import permutations

import numpy as np
import numpy.typing as npt

from hlosharding.errors import ShardingError
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.memo import memoised
from hlosharding.sharding.subgroups import SubgroupType, partial_tile
from hlosharding.sharding.tile_assignment import TileAssignment, ceil_div


@memoised
def is_more_specific(left: HloSharding, right: HloSharding) -> bool:
    """Does `left` say more?  Tuples: in some leaf, and in no leaf less.

    >>> is_more_specific(HloSharding.iota_tile((2,)), HloSharding.replicate())
    True
    """
    _check_alike(left, right)
    if left.kind == "tuple":
        pairs = list(zip(left.tuple_elements, right.tuple_elements, strict=True))
        return not any(is_more_specific(b, a) for a, b in pairs) and any(is_more_specific(a, b) for a, b in pairs)
    if left.is_manual() and right.is_tile_maximal():
        return True
    if left.is_manual() or right.is_manual():
        return False
    if not right.is_tile_maximal():
        return left.num_tiles > right.num_tiles
    return not (left.is_replicated() if right.is_replicated() else left.is_tile_maximal())


@memoised
def is_strictly_better(left: HloSharding, right: HloSharding) -> bool:
    """Manual against tile-maximal; tuples: in some leaf, and in no leaf the other way round.

    >>> is_strictly_better(HloSharding.manual(), HloSharding.replicate())
    True
    """
    _check_alike(left, right)
    pairs = list(zip(left.leaves, right.leaves, strict=True))
    better = any(a.is_manual() and b.is_tile_maximal() for a, b in pairs)
    return better and not any(b.is_manual() and a.is_tile_maximal() for a, b in pairs)


def _check_alike(left: HloSharding, right: HloSharding) -> None:
    if left.is_tuple() != right.is_tuple() or len(left.leaves) != len(right.leaves):
        raise ShardingError(f"cannot compare {left} with {right}: they are of different tuples")


@memoised
def merge_sharding(old: HloSharding, new: HloSharding, combine: bool) -> tuple[bool, HloSharding]:
    """Can `new` replace `old`, and what would it be?  With `combine`, two partial tilings may become a finer one.

    >>> half = HloSharding.parse("{devices=[2,1,2]<=[4] last_tile_dim_replicate}")
    >>> other = HloSharding.parse("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}")
    >>> better, merged = merge_sharding(half, other, True)
    >>> better, str(merged)
    (True, '{devices=[2,2]<=[4]}')
    """
    _check_alike(old, new)
    if old.kind == "tuple":
        merged = [merge_sharding(a, b, combine) for a, b in zip(old.tuple_elements, new.tuple_elements, strict=True)]
        return any(changed for changed, _ in merged), HloSharding.tuple(leaf for _, leaf in merged)
    both_partial = old.has_partial_replication() and new.has_partial_replication()
    if combine and both_partial and old.total_num_tiles == new.total_num_tiles:
        # Finer than both, or nothing is gained by merging.
        result = merge_if_compatible(old, new, max(old.num_tiles, new.num_tiles) + 1)
        if result is not None:
            return True, result
    return is_more_specific(new, old), new


@memoised
def merge_if_compatible(source: HloSharding, target: HloSharding, min_tiles: int | None = None) -> HloSharding | None:
    """The sharding that splits as both do, or None; with at least `min_tiles` tiles (default: more than `target`).

    >>> half = HloSharding.parse("{devices=[2,1,2]<=[4] last_tile_dim_replicate}")
    >>> other = HloSharding.parse("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}")
    >>> str(merge_if_compatible(half, other))
    '{devices=[2,2]<=[4]}'
    """
    if any(s.is_tuple() or s.is_manual() for s in (source, target)):
        raise ShardingError(f"only leaves that are not manual can be merged, got {source} and {target}")
    if not source.is_tiled():
        return None
    if not target.is_tiled():
        return source if target.is_tile_maximal() else None
    if not target.has_partial_replication() or source.tiled_data_rank != target.tiled_data_rank:
        return None
    # XLA ends the process where the numbers of devices differ: here such shardings do not merge.
    if source.total_num_tiles != target.total_num_tiles:
        return None
    kept = _common_subgroups(source, target)
    if kept is None:
        return None
    pairs = list(zip(source.data_dims, target.data_dims, strict=True))
    if any(a != b and min(a, b) != 1 for a, b in pairs):
        return None
    data = [max(pair) for pair in pairs]
    cells, held = math.prod(data), math.prod(source.subgroup_size(t) for t in kept)
    wanted = target.num_tiles + 1 if min_tiles is None else min_tiles
    if source.total_num_tiles % (cells * held) or cells < wanted:
        return None
    return _merge(source, target, data, kept, source.total_num_tiles // (cells * held))


def _common_subgroups(source: HloSharding, target: HloSharding) -> tuple[SubgroupType, ...] | None:
    """Subgroups other than replication, which both must have, and of one size."""
    # XLA merges an unreduced subgroup away, and what are partial sums would be read as if they were whole.  Here both
    # sides must have it, and it stays.
    kept: tuple[SubgroupType, ...] = tuple(t for t in target.subgroup_types if t != "replicated")
    theirs: tuple[SubgroupType, ...] = tuple(t for t in source.subgroup_types if t != "replicated")
    if kept != theirs:
        return None
    return kept if all(source.subgroup_size(t) == target.subgroup_size(t) for t in kept) else None


def _merge(
    source: HloSharding, target: HloSharding, data: list[int], kept: tuple[SubgroupType, ...], copies: int
) -> HloSharding | None:
    tiles = _merge_by_reshape(source, target, data, kept, copies)
    if tiles is None:
        tiles = _merge_by_sets(source, target, data, kept, copies)
    if tiles is None:
        return None
    metadata = (*target.metadata, *(m for m in source.metadata if m not in target.metadata))
    types: tuple[SubgroupType, ...] = (*kept, "replicated") if copies > 1 else kept
    return HloSharding.subgroup(tiles, types, metadata)


def _merge_by_reshape(
    source: HloSharding, target: HloSharding, data: list[int], kept: tuple[SubgroupType, ...], copies: int
) -> TileAssignment | None:
    """Tiles that both sides reach by splitting their replicated dim: XLA's first way, which keeps iota forms."""
    from_source = _refinements(source, data, kept, copies)
    found: TileAssignment | None = None
    for ours in _refinements(target, data, kept, copies):
        for theirs in from_source:
            if ours == theirs:
                found = ours if ours.iota is not None else theirs
    return found


def _refinements(
    sharding: HloSharding, data: list[int], kept: tuple[SubgroupType, ...], copies: int
) -> list[TileAssignment]:
    """Every way to hand the replicated dim's factors to the data dims that `sharding` does not split itself."""
    if sharding.subgroup_size("replicated") in (1, copies):
        return [sharding.tiles]
    old_dims, new = [], []
    place: dict[int, int] = {}
    for dim, (mine, merged) in enumerate(zip(sharding.data_dims, data, strict=True)):
        if mine == merged:
            place[dim] = len(old_dims)
            old_dims.append(mine)
        else:
            new.append((merged, dim))
    for i, kind in enumerate(kept):
        place[len(data) + i] = len(old_dims)
        old_dims.append(sharding.subgroup_size(kind))
    if copies > 1:
        new.append((copies, len(data) + len(kept)))
    results: list[TileAssignment] = []
    for order in permutations(new):
        places = place | {dim: len(old_dims) + i for i, (_, dim) in enumerate(order)}
        reshaped = sharding.tiles.reshape((*old_dims, *(size for size, _ in order)))
        results.append(reshaped.transpose([places[dim] for dim in range(len(places))]))
    return results


def _merge_by_sets(
    source: HloSharding, target: HloSharding, data: list[int], kept: tuple[SubgroupType, ...], copies: int
) -> TileAssignment | None:
    """Cell by cell, the smallest devices that both sides' groups share: XLA's second way, always an explicit list."""
    held = [source.subgroup_size(t) for t in kept]
    ours, theirs = (sharding.tiles.array.ravel() for sharding in (source, target))
    shared, our_place, their_place = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    count = len(theirs) // target.subgroup_size("replicated")
    groups = our_place // source.subgroup_size("replicated") * count
    groups += their_place // target.subgroup_size("replicated")
    by_groups = np.argsort(groups, kind="stable")
    # No two cells have both groups in common: so none takes a device that another could have.
    cells = np.indices((*data, *held)).reshape(len(data) + len(held), -1)
    wanted = _group_of(source, cells, held) * count + _group_of(target, cells, held)
    first = np.searchsorted(groups[by_groups], wanted)
    if (np.searchsorted(groups[by_groups], wanted, side="right") - first < copies).any():
        return None
    devices = shared[by_groups][(first[:, None] + np.arange(copies)).ravel()]
    if len(devices) != source.total_num_tiles:
        return None
    dims = (*data, *held, copies) if copies > 1 else (*data, *held)
    return TileAssignment.from_flat(dims, devices.tolist())


def _group_of(sharding: HloSharding, cells: npt.NDArray[np.int64], held: Sequence[int]) -> npt.NDArray[np.int64]:
    """[cell]: the number of its group: devices of one tile (and manual or unreduced index)."""
    group = np.zeros(cells.shape[1], np.int64)
    for ways, index in zip((*sharding.data_dims, *held), cells, strict=True):
        group = group * ways + (index if ways > 1 else 0)
    return group


def find_common_sharding(shardings: Iterable[HloSharding], default: HloSharding | None = None) -> HloSharding:
    """All of them merged; where that fails `default`, or else the first.

    >>> str(find_common_sharding([HloSharding.replicate(), HloSharding.iota_tile((2,))]))
    '{devices=[2]<=[2]}'
    """
    first, *rest = shardings
    common: HloSharding | None = first
    for other in rest:
        if common is not None and common != other:
            # As many tiles as so far are enough, where the default asks for more: another that says nothing new is no
            # reason to fail.
            common = merge_if_compatible(other, common, common.num_tiles)
    return common or default or first


@memoised
def is_subtiling_or_equal(dims: Sequence[int], fine: HloSharding, coarse: HloSharding) -> bool:
    """Does every device's `fine` tile of an array of sizes `dims` lie within its `coarse` tile (padding aside)?

    >>> half = HloSharding.parse("{devices=[2,2]<=[4] last_tile_dim_replicate}")
    >>> is_subtiling_or_equal((8,), HloSharding.iota_tile((4,)), half)
    True
    """
    if fine.is_manual() or coarse.is_manual():
        return False
    if coarse.is_tile_maximal():
        return True
    if fine.is_tile_maximal() or not (fine.is_tiled() and coarse.is_tiled()):
        return False
    if not fine.tiled_data_rank == coarse.tiled_data_rank == len(dims):
        return False
    if any(a < b for a, b in zip(fine.data_dims, coarse.data_dims, strict=True)):
        return False
    if _splits_evenly(dims, fine, coarse):
        return _is_refinement(fine, coarse)
    return _lies_within(dims, fine, coarse)


def _splits_evenly(dims: Sequence[int], fine: HloSharding, coarse: HloSharding) -> bool:
    """Every coarse tile is made of whole fine tiles, and no device holds padding only."""
    for size, a, b in zip(dims, fine.data_dims, coarse.data_dims, strict=True):
        if b == 1:
            continue
        small, large = ceil_div(size, a), ceil_div(size, b)
        if not small or a % b or large % small or size <= (a - 1) * small or size <= (b - 1) * large:
            return False
    return True


def _is_refinement(fine: HloSharding, coarse: HloSharding) -> bool:
    """Give the extra tiles of `fine` to replication and compare, as XLA's shortcut does."""
    if not coarse.has_partial_replication():
        return fine == coarse
    shape: list[int] = []
    kept: list[int] = []
    extra: list[int] = []
    for a, b in zip(fine.data_dims, coarse.data_dims, strict=True):
        kept.append(len(shape))
        shape.append(b)
        if a != b:
            extra.append(len(shape))
            shape.append(a // b)
    behind = fine.tiles.dims[fine.tiled_data_rank :]
    perm = [*kept, *range(len(shape), len(shape) + len(behind)), *extra]
    tiles = fine.tiles.reshape((*shape, *behind)).transpose(perm)
    if tiles.num_elements != coarse.tiles.num_elements:
        return False
    return partial_tile(tiles.reshape(coarse.tiles.dims))[1] == coarse.tiles


def _lies_within(dims: Sequence[int], fine: HloSharding, coarse: HloSharding) -> bool:
    """Compare both intervals of every device in every dim."""
    narrow, wide = (np.array(sharding.tile_shape(dims), np.int64) for sharding in (fine, coarse))
    devices, others = fine.tiles.array.ravel(), coarse.tiles.array.ravel()
    starts = np.zeros((max(devices.max(), others.max()) + 1, len(dims)), np.int64)
    starts[others] = _tile_numbers(coarse) * wide
    start, begin = starts[devices], _tile_numbers(fine) * narrow
    end = begin + narrow
    # As XLA: a last tile that reaches beyond the dim cannot lie outside of the coarse one.
    return not ((begin < start) | ((start + wide < end) & (end <= dims))).any()


def _tile_numbers(sharding: HloSharding) -> npt.NDArray[np.int64]:
    """[place in the tile assignment, data dim]"""
    places = np.indices(sharding.tiles.dims).reshape(len(sharding.tiles.dims), -1)
    return places[: sharding.tiled_data_rank].T
