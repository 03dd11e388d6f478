"""Devices in groups: take some tile dims out of a sharding, so that each group sees a smaller sharding of its own.

Floor: sharding.  Follows XLA's GroupShardingOnDims and UngroupSharding; device ids inside a group are positions in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlosharding.errors import ShardingError
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.memo import memoised
from hlosharding.sharding.subgroups import SubgroupType
from hlosharding.sharding.tile_assignment import Dims, TileAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedSharding:
    """A sharding seen from inside one of its device groups."""

    groups: TileAssignment
    """[groups, devices in a group]; groups in row-major order of the group dims, in the order of `group_dims`."""
    group_dims: Dims
    """Tile dims that were taken out."""
    group_dim_sizes: Dims
    """How many groups lie along each."""
    data_rank: int
    sharding: HloSharding
    """What is left, over device positions in the group."""
    subgroup_manual: bool = False
    """The group dims were a manual subgroup."""

    @property
    def device_groups(self) -> tuple[Dims, ...]:
        """Devices of each group."""
        return tuple(map(tuple, self.groups.array.tolist()))


@memoised
def group_sharding_on_dims(
    sharding: HloSharding,
    group_dims: Sequence[int],
    group_dim_shards: Sequence[int] | None = None,
    subgroup_manual: bool = False,
) -> GroupedSharding:
    """Take tile dims out; `group_dim_shards` says how many tiles of each stay inside the groups (default 1).

    >>> group_sharding_on_dims(HloSharding.iota_tile((2, 2)), (0,)).device_groups
    ((0, 1), (2, 3))
    """
    if sharding.kind != "tiled":
        raise ShardingError(f"{sharding} has no tiles to group")
    dims = sharding.tiles.dims
    shards = tuple(group_dim_shards) if group_dim_shards is not None else (1,) * len(group_dims)
    if any(dims[dim] % stay for dim, stay in zip(group_dims, shards, strict=True)):
        raise ShardingError(f"{shards} does not divide the tiles of dims {tuple(group_dims)} of {sharding}")
    sizes = tuple(dims[dim] // stay for dim, stay in zip(group_dims, shards, strict=True))
    inner = list(dims)
    for dim, stay in zip(group_dims, shards, strict=True):
        inner[dim] = stay
    return GroupedSharding(
        groups=_groups(sharding.tiles, group_dims, sizes, inner),
        group_dims=tuple(group_dims),
        group_dim_sizes=sizes,
        data_rank=_grouped_rank(sharding),
        sharding=_inner_sharding(sharding, inner),
        subgroup_manual=subgroup_manual,
    )


def _groups(tiles: TileAssignment, group_dims: Sequence[int], sizes: Dims, inner: list[int]) -> TileAssignment:
    shape: list[int] = []
    place: dict[int, int] = {}
    for dim, stay in enumerate(inner):
        if dim in group_dims:
            place[dim] = len(shape)
            shape.append(sizes[list(group_dims).index(dim)])
        shape.append(stay)
    first = [place[dim] for dim in group_dims]
    rest = [i for i in range(len(shape)) if i not in first]
    count = math.prod(sizes)
    return tiles.reshape(shape).transpose([*first, *rest]).reshape((count, tiles.num_elements // count))


def _grouped_rank(sharding: HloSharding) -> int:
    """As XLA: a manual subgroup takes all subgroup dims off the rank, a lone replicated one takes itself."""
    rank = len(sharding.tiles.dims)
    if sharding.is_manual_subgroup():
        return rank - len(sharding.subgroup_types)
    return rank - 1 if sharding.replicate_on_last_tile_dim else rank


def _inner_sharding(sharding: HloSharding, inner: list[int]) -> HloSharding:
    partial = sharding.replicate_on_last_tile_dim
    if math.prod(inner) == 1 or (partial and math.prod(inner) == inner[-1]):
        return HloSharding.replicate()
    rank = sharding.tiled_data_rank
    kept = [n for i, n in enumerate(inner) if i < rank or sharding.subgroup_types[i - rank] != "manual"]
    if partial and kept[-1] == 1:
        kept.pop()
    if partial and len(kept) == len(sharding.tiles.dims):
        return HloSharding.partial_tile(TileAssignment.from_iota(kept), sharding.metadata)
    return HloSharding.iota_tile(kept, metadata=sharding.metadata)


@memoised
def group_sharding_on_all_dims_except(sharding: HloSharding, dims: Sequence[int]) -> GroupedSharding:
    """Take all tile dims out but `dims` (GroupShardingOnAllDimsExcept).

    >>> group_sharding_on_all_dims_except(HloSharding.iota_tile((2, 2)), (0,)).device_groups
    ((0, 2), (1, 3))
    """
    rest = tuple(d for d in range(len(sharding.tiles.dims)) if d not in dims)
    return group_sharding_on_dims(sharding, rest)


@memoised
def manual_subgroup_sharding(sharding: HloSharding) -> GroupedSharding:
    """Groups along the manual subgroup; what is left has its replicated subgroup as such (GetManualSubgroupSharding).

    >>> s = HloSharding.parse("{devices=[2,2]<=[4] last_tile_dims={manual}}")
    >>> str(manual_subgroup_sharding(s).sharding)
    '{devices=[2]<=[2]}'
    """
    if not sharding.is_manual_subgroup() or sharding.kind != "tiled":
        raise ShardingError(f"{sharding} has no manual subgroup")
    dim = sharding.subgroup_dim("manual")
    assert dim is not None
    group = group_sharding_on_dims(sharding, (dim,), None, True)
    if group.sharding.tile_assignment is None or not sharding.has_partial_replication():
        return group
    inner = HloSharding.partial_tile(group.sharding.tile_assignment, sharding.metadata)
    return replace(group, sharding=inner)


@memoised
def device_groups_along(sharding: HloSharding, dims: Sequence[int]) -> tuple[Dims, ...]:
    """Groups of devices that differ only in their position along those tile dims, in tile order.

    This is who talks to whom when the tiles of `dims` are gathered or reduced.

    >>> device_groups_along(HloSharding.iota_tile((2, 2)), (0,))
    ((0, 2), (1, 3))
    """
    if sharding.kind != "tiled":
        raise ShardingError(f"{sharding} has no tile dims to group along")
    return group_sharding_on_all_dims_except(sharding, dims).device_groups


def grouped_replicated_sharding(num_groups: int, num_tiles: int, data_rank: int) -> GroupedSharding:
    """`num_tiles` devices in `num_groups` groups of neighbours, each replicated (GetGroupedReplicatedSharding).

    >>> grouped_replicated_sharding(2, 4, 1).device_groups
    ((0, 1), (2, 3))
    """
    if num_tiles % num_groups:
        raise ShardingError(f"{num_groups} groups do not divide {num_tiles} devices")
    return GroupedSharding(
        groups=TileAssignment.from_iota((num_groups, num_tiles // num_groups)),
        group_dims=(data_rank,),
        group_dim_sizes=(num_groups,),
        data_rank=data_rank,
        sharding=HloSharding.replicate(),
    )


def ungroup_sharding(group: GroupedSharding) -> HloSharding:
    """The sharding over all devices that `group` is an inside view of.

    >>> str(ungroup_sharding(group_sharding_on_dims(HloSharding.iota_tile((2, 2)), (0,))))
    '{devices=[2,2]<=[4]}'
    """
    dims, types = _manual_dims(group) if group.subgroup_manual else _plain_dims(group)
    tiles = _ungroup_tiles(group, dims)
    if group.subgroup_manual:
        return HloSharding.subgroup(tiles, types, group.sharding.metadata)
    return HloSharding.partial_tile(tiles) if types else HloSharding.tile(tiles)


def _plain_dims(group: GroupedSharding) -> tuple[list[int], list[SubgroupType]]:
    """Tile dims inside a group, with a trailing replicated one where there is or will be one."""
    size = group.groups.dims[1]
    if group.sharding.tile_assignment is None or group.sharding.kind != "tiled":
        dims = [1] * group.data_rank
        if size != 1 or len(dims) in group.group_dims:
            return [*dims, size], ["replicated"]
        return dims, []
    dims = list(group.sharding.tiles.dims)
    if len(dims) in group.group_dims:
        return [*dims, 1], ["replicated"]
    return dims, ["replicated"] if group.sharding.replicate_on_last_tile_dim else []


def _manual_dims(group: GroupedSharding) -> tuple[list[int], list[SubgroupType]]:
    inner = group.sharding
    partial = inner.replicate_on_last_tile_dim or inner.is_replicated()
    dims = list(inner.tiles.dims) if inner.kind == "tiled" else _plain_dims(group)[0]
    types: list[SubgroupType] = ["replicated"] * (len(group.group_dims) + partial)
    for dim in group.group_dims:
        types[dim - group.data_rank] = "manual"
        dims.insert(dim, 1)
    return dims, types[: len(dims) - group.data_rank]


def _ungroup_tiles(group: GroupedSharding, dims: list[int]) -> TileAssignment:
    """Put the groups' devices back: group dims go in front of the tile dims they belong to."""
    tiles = _in_inner_order(group).reshape((*group.group_dim_sizes, *dims))
    count = len(group.group_dims)
    place = {dim: i for i, dim in enumerate(group.group_dims)}
    perm = [p for dim in range(len(dims)) for p in ((place[dim], count + dim) if dim in place else (count + dim,))]
    merged = [n * (group.group_dim_sizes[place[dim]] if dim in place else 1) for dim, n in enumerate(dims)]
    return tiles.transpose(perm).reshape(merged)


def _in_inner_order(group: GroupedSharding) -> TileAssignment:
    """The groups, members in the order of the inner sharding's tiles."""
    size = group.groups.dims[1]
    if group.sharding.kind != "tiled" or group.sharding.tiles.num_elements != size:
        return group.groups
    order = group.sharding.tiles
    if order.iota is not None:
        inner = group.groups.reshape((group.groups.dims[0], *order.iota.reshape_dims))
        return inner.transpose((0, *(p + 1 for p in order.iota.transpose_perm))).reshape(group.groups.dims)
    return TileAssignment.from_array(group.groups.array[:, list(order.flat)])


def device_groups_match(left: GroupedSharding, right: GroupedSharding, *, ignore_order: bool = False) -> bool:
    """Do both group the devices alike (DeviceGroupsAreMatch)?

    >>> a, b = (group_sharding_on_dims(HloSharding.iota_tile((2, 2)), (d,)) for d in (0, 1))
    >>> device_groups_match(a, a), device_groups_match(a, b)
    (True, False)
    """
    if len(left.device_groups) != len(right.device_groups):
        return False
    where = {device: g for g, members in enumerate(left.device_groups) for device in members}
    for g, members in enumerate(right.device_groups):
        homes = {where.get(device) for device in members}
        if len(homes) != 1 or None in homes or not (ignore_order or homes == {g}):
            return False
    return True
