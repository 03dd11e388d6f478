"""Normal form of tiled leaves whose last tile dims are replicated, manual or unreduced.

Floor: sharding.  Tile assignments in, (kind, tile assignment, subgroup types) out; follows XLA's PartialTile and
Subgroup, whose choices between iota and explicit spelling show when a sharding is printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from hlosharding.errors import ShardingError
from hlosharding.sharding.tile_assignment import TileAssignment

Kind = Literal["replicated", "maximal", "tiled", "manual", "unknown", "unreduced", "tuple"]
SubgroupType = Literal["manual", "unreduced", "replicated"]

SUBGROUP_TYPES: tuple[SubgroupType, ...] = ("manual", "unreduced", "replicated")
"""In the order in which normal form puts them."""

LeafParts = tuple[Kind, TileAssignment | None, tuple[SubgroupType, ...]]


def partial_tile(tiles: TileAssignment) -> LeafParts:
    """Normal form of an assignment whose last dim is replicated: devices inside a replication group are sorted."""
    size = tiles.dims[-1]
    if len(tiles.dims) == 1 or size == tiles.num_elements:
        return "replicated", None, ()
    if size == 1:
        return "tiled", tiles.reshape(tiles.dims[:-1]), ()
    return "tiled", _sort_groups(tiles, size), ("replicated",)


def _sort_groups(tiles: TileAssignment, size: int) -> TileAssignment:
    if tiles.iota is not None:
        # A group is one digit of the iota then, and its devices ascend as they are.
        if tiles.iota.reshape_dims[tiles.iota.transpose_perm[-1]] == size:
            return tiles
        grouped = _group_minor(tiles.iota.reshape_dims, tiles.iota.transpose_perm, size)
        if grouped is not None:
            return TileAssignment.from_iota(tiles.dims, *grouped)
    flat = tiles.flat
    devices = [d for start in range(0, len(flat), size) for d in sorted(flat[start : start + size])]
    return TileAssignment.from_flat(tiles.dims, devices)


def _group_minor(dims: Sequence[int], perm: Sequence[int], size: int) -> tuple[list[int], list[int]] | None:
    """Sort the minor iota dims that make up a group of `size`, splitting one if need be (GroupMinorIotaDimsSorted)."""
    grouped = 0
    for at in reversed(range(len(perm))):
        dim = perm[at]
        if dims[dim] > size and dims[dim] % size == 0:
            return _split_and_sort(dims, perm, at, size, grouped)
        if dims[dim] > size or size % dims[dim]:
            return None
        size //= dims[dim]
        grouped += 1
        if size == 1:
            break
    return list(dims), _sort_last(list(perm), grouped)


def _split_and_sort(
    dims: Sequence[int], perm: Sequence[int], at: int, size: int, grouped: int
) -> tuple[list[int], list[int]]:
    dim = perm[at]
    new_dims = [*dims[:dim], dims[dim] // size, size, *dims[dim + 1 :]]
    new_perm = [p if p <= dim else p + 1 for p in perm]
    new_perm.insert(at + 1, dim + 1)
    return new_dims, _sort_last(new_perm, grouped + 1)


def _sort_last(perm: list[int], count: int) -> list[int]:
    return perm[: len(perm) - count] + sorted(perm[len(perm) - count :])


def subgroup(tiles: TileAssignment, types: Sequence[SubgroupType]) -> LeafParts:
    """Normal form of an assignment whose last `len(types)` dims are subgroups: none of size 1, one a type, sorted."""
    if not types:
        return "tiled", tiles, ()
    rank = len(tiles.dims) - len(types)
    if rank < 0:
        raise ShardingError(f"{len(types)} subgroup types for {len(tiles.dims)} tile dims")
    if len(set(types)) == 1 and math.prod(tiles.dims[:rank]) == 1:
        return types[0], None, ()
    groups: dict[SubgroupType, list[int]] = {
        t: [rank + i for i, u in enumerate(types) if u == t and tiles.dims[rank + i] > 1] for t in SUBGROUP_TYPES
    }
    kept: tuple[SubgroupType, ...] = tuple(t for t in SUBGROUP_TYPES if groups[t])
    untouched = len(kept) == 1 and len(types) == 1
    return _finish(tiles if untouched else _merge_groups(tiles, rank, groups), tuple(types) if untouched else kept)


def _merge_groups(tiles: TileAssignment, rank: int, groups: dict[SubgroupType, list[int]]) -> TileAssignment:
    order = [dim for t in SUBGROUP_TYPES for dim in groups[t]]
    removed = [dim for dim in range(rank, len(tiles.dims)) if tiles.dims[dim] == 1]
    merged = [*tiles.dims[:rank], *(math.prod(tiles.dims[d] for d in groups[t]) for t in SUBGROUP_TYPES if groups[t])]
    return tiles.transpose([*range(rank), *order, *removed]).reshape(merged)


def _finish(tiles: TileAssignment, types: tuple[SubgroupType, ...]) -> LeafParts:
    if types == ("replicated",):
        return partial_tile(tiles)
    if types == ("manual",) and tiles.num_elements == tiles.dims[-1]:
        return "manual", None, ()
    if types and types[-1] == "replicated":
        # As XLA: sorted as a partial tile first; the types are put back, whatever a degenerate result would have been.
        return "tiled", _sort_groups(tiles, tiles.dims[-1]), types
    return "tiled", tiles, types
