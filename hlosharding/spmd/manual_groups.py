"""Manual groups: devices that share their manual coordinates partition the rest of the program among themselves.

Floor: spmd.  Pure algebra on device groups and HloShardings; knows no instructions.  Inside manual groups a device's
number is its position in its group, and shardings have lost their manual dims, as XLA's GetManualSubgroupSharding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hlosharding.errors import PartitionError
from hlosharding.sharding import REPLICATED, HloSharding, SubgroupType, tile_table
from hlosharding.spmd.participants import Groups

Dims = tuple[int, ...]


@dataclass(frozen=True)
class ManualGroups:
    """All groups of one manual region; each computes the same program on its own data."""

    groups: Groups
    """Devices of each group, all of one size; a device's number inside is its position."""

    @property
    def size(self) -> int:
        """Devices of a group."""
        return len(self.groups[0])

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """(group, position) of each device."""
        return {device: (g, p) for g, group in enumerate(self.groups) for p, device in enumerate(group)}

    def in_every_group(self, group: Sequence[int]) -> Groups:
        """Positions of one collective's members, as the devices of every group.

        >>> ManualGroups(((0, 1), (2, 3))).in_every_group((1, 0))
        ((1, 0), (3, 2))
        """
        return tuple(tuple(members[p] for p in group) for members in self.groups)

    def per_device(self, table: Sequence[int]) -> Dims:
        """A table of one number per position, as one number per device."""
        return tuple(table[self.places[device][1]] for device in range(len(self.places)))


@lru_cache(maxsize=1 << 12)
def manual_groups_of(sharding: HloSharding) -> ManualGroups:
    """The groups of a sharding with a manual subgroup.

    >>> manual_groups_of(HloSharding.parse("{devices=[2,2]<=[4] last_tile_dims={manual}}"))
    ManualGroups(groups=((0, 2), (1, 3)))
    """
    rows = _by_group(sharding)
    # In one order, however the sharding lists its devices: regions are told apart by comparing groups.
    groups = sorted(tuple(sorted(map(int, row.reshape(-1)))) for row in rows)
    return ManualGroups(tuple(groups))


def _by_group(sharding: HloSharding) -> np.ndarray:
    """The tile array with its manual dim in front."""
    dim = sharding.subgroup_dim("manual")
    assert dim is not None, "only of manual subgroups"
    return np.moveaxis(sharding.tiles.array, dim, 0)


@lru_cache(maxsize=1 << 14)
def sharding_in_groups(sharding: HloSharding, manual_groups: ManualGroups) -> HloSharding:
    """The sharding as each group sees it.  Raises PartitionError where groups differ, or are those of another region.

    >>> s = HloSharding.parse("{devices=[2,2]<=[4] last_tile_dims={manual}}")
    >>> str(sharding_in_groups(s, manual_groups_of(s)))
    '{devices=[2]<=[2]}'
    """
    if not sharding.is_manual_subgroup():
        return sharding
    if manual_groups_of(sharding) != manual_groups:
        raise PartitionError(f"{sharding} has other manual groups than {_shown(manual_groups)}")
    seen = {_positions(row, manual_groups).tobytes(): _positions(row, manual_groups) for row in _by_group(sharding)}
    if len(seen) > 1:
        raise PartitionError(
            f"{sharding}: the tiles lie differently in its manual groups",
            remedy="list the devices of all groups in one order",
        )
    types: list[SubgroupType] = [t for t in sharding.subgroup_types if t != "manual"]
    return HloSharding.subgroup(next(iter(seen.values())), types).meaning


@lru_cache(maxsize=1 << 14)
def in_one_order(sharding: HloSharding) -> HloSharding:
    """A sharding with manual groups whose tiles lie in all groups as they do in the first; any other as it is.

    >>> str(in_one_order(HloSharding.parse("{devices=[2,2]0,3,1,2 last_tile_dims={manual}}")))
    '{devices=[2,2]<=[2,2]T(1,0) last_tile_dims={manual}}'
    """
    if sharding.is_tuple():
        return HloSharding.tuple([in_one_order(leaf) for leaf in sharding.leaves])
    if not sharding.is_manual_subgroup():
        return sharding
    manual_groups, rows = manual_groups_of(sharding), _by_group(sharding)
    first = _positions(min(rows, key=lambda row: int(row.min())), manual_groups)
    if all((_positions(row, manual_groups) == first).all() for row in rows):
        return sharding
    types: list[SubgroupType] = [t for t in sharding.subgroup_types if t != "manual"]
    return sharding_of_all(HloSharding.subgroup(first, types).meaning, manual_groups, len(sharding.data_dims))


def _positions(row: np.ndarray, manual_groups: ManualGroups) -> np.ndarray:
    return np.vectorize(lambda device: manual_groups.places[device][1], otypes=[np.int64])(row)


def _shown(manual_groups: ManualGroups) -> str:
    return " ".join("{" + ",".join(map(str, group)) + "}" for group in manual_groups.groups)


@lru_cache(maxsize=1 << 14)
def sharding_of_all(sharding: HloSharding, manual_groups: ManualGroups, rank: int) -> HloSharding:
    """A group's sharding of an array of `rank` dims, as all devices see it: the inverse of `sharding_in_groups`.

    >>> str(sharding_of_all(HloSharding.parse("{devices=[2]<=[2]}"), ManualGroups(((0, 2), (1, 3))), 1))
    '{devices=[2,2]<=[4] last_tile_dims={manual}}'
    """
    if sharding.kind != "tiled":
        positions = np.arange(manual_groups.size).reshape((1,) * rank + (manual_groups.size,))
        tiles = np.stack([np.array(group)[positions] for group in manual_groups.groups], axis=rank)
        return HloSharding.subgroup(tiles, ("manual", "unreduced" if sharding.is_unreduced() else "replicated")).meaning
    tiles = np.stack([np.array(group)[sharding.tiles.array] for group in manual_groups.groups], axis=rank)
    return HloSharding.subgroup(tiles, ("manual", *sharding.subgroup_types)).meaning


@lru_cache(maxsize=1 << 12)
def tiles_in_groups(outer: HloSharding, manual_groups: ManualGroups, whole: Dims, piece: Dims) -> HloSharding | None:
    """How the tiles of `outer` (over all devices, of an array `whole`) split each group's `piece` of that array.

    None where a group's tiles do not make up its piece, or do so differently in different groups.

    >>> rows = HloSharding.parse("{devices=[4]<=[4]}")
    >>> str(tiles_in_groups(rows, ManualGroups(((0, 1), (2, 3))), (8,), (4,)))
    '{devices=[2]<=[2]}'
    """
    ways = _inner_ways(outer, whole, piece)
    if ways is None or manual_groups.size % max(1, int(ways.prod())):
        return None
    table = _tile_numbers(outer, manual_groups, len(whole))
    groups = [table[list(group)] for group in manual_groups.groups]
    inner = groups[0] % ways
    if any((g // ways != g[0] // ways).any() or (g % ways != inner).any() for g in groups):
        return None
    # The last key counts first: tile by tile in row-major order, devices that hold one tile in ascending order.
    order = np.lexsort((np.arange(manual_groups.size), *inner.T[::-1]))
    return HloSharding.partial_tile(order.reshape((*ways, -1))).meaning


def group_pieces(outer: HloSharding, manual_groups: ManualGroups, whole: Dims, piece: Dims) -> HloSharding | None:
    """`outer` with each group's piece whole on all its members; None where its groups do not hold one piece each."""
    ways = _inner_ways(outer, whole, piece)
    counts = [s // p for s, p in zip(whole, piece, strict=True)] if ways is not None else []
    if ways is None or outer.is_manual_subgroup() or len(manual_groups.places) % math.prod(counts):
        return None
    table = _tile_numbers(outer, manual_groups, len(whole)) // ways
    if any((table[list(g)] != table[g[0]]).any() for g in manual_groups.groups):
        return None
    order = np.lexsort((np.arange(len(table)), *table.T[::-1]))
    return HloSharding.partial_tile(order.reshape((*counts, -1))).meaning


def _tile_numbers(sharding: HloSharding, manual_groups: ManualGroups, rank: int) -> np.ndarray:
    """[device, dim]: which tile."""
    count = len(manual_groups.places)
    return np.array(tile_table(_as_data(sharding), rank, count)).reshape(count, rank)


def _as_data(sharding: HloSharding) -> HloSharding:
    return sharding if sharding.kind == "tiled" else REPLICATED


def _inner_ways(outer: HloSharding, whole: Dims, piece: Dims) -> np.ndarray | None:
    """Tiles that remain of each dim inside a group."""
    tiles = outer.data_dims if outer.kind == "tiled" else (1,) * len(whole)
    if any(p == 0 or s % p or t % (s // p) for s, p, t in zip(whole, piece, tiles, strict=True)):
        return None
    return np.array([t * p // s for s, p, t in zip(whole, piece, tiles, strict=True)], int)
