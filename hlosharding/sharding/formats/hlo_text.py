"""XLA's texts and objects: V1 lists devices, V2 is an iota, V3 names the axes of a mesh.

Floor: sharding.
"""

from __future__ import annotations

from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.formats.interchange import FormatContext, Interchange
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.naming import find_named_form
from hlosharding.sharding.tile_assignment import TileAssignment


def is_hlo(source: Any) -> bool:
    """An HloSharding, or its text?"""
    return isinstance(source, HloSharding) or (isinstance(source, str) and source.lstrip().startswith("{"))


def read(source: Any, context: FormatContext) -> Interchange:
    """From an HloSharding or any of its texts."""
    sharding = source if isinstance(source, HloSharding) else HloSharding.parse(source)
    found = Interchange(sharding.without_metadata())
    if found.rank is not None:
        context.rank(found.rank, sharding)
    if context.ndim is not None and found.rank not in (None, context.ndim):
        raise ShardingError(f"{sharding} is of {found.rank} dims, the array has {context.ndim}")
    return found


def to_hlo(found: Interchange, context: FormatContext) -> HloSharding:
    """The sharding, named over the caller's mesh where axes can say it."""
    sharding = found.sharding
    if context.mesh is not None and sharding.shard_group is None and not sharding.is_tuple():
        is_named = find_named_form(sharding.without_names(), context.mesh) is not None
        sharding = found.over(context.mesh).sharding if is_named else sharding
    form = sharding.named_form
    return sharding if form is None else HloSharding.from_named_form(form)


def to_v1(found: Interchange, context: FormatContext) -> str:
    """`{devices=[2,2]0,1,2,3}`."""
    return str(_leafwise(found.sharding, _listed))


def to_v2(found: Interchange, context: FormatContext) -> str:
    """`{devices=[2,2]<=[4]}`."""
    return str(_leafwise(found.sharding, _as_iota))


def to_v3(found: Interchange, context: FormatContext) -> str:
    """`{mesh['a'=2,'b'=2], [{'a'}, {'b'}]}`."""
    if not found.sharding.is_tuple():
        return str(to_hlo(found, context))
    return str(HloSharding.tuple(Interchange(leaf).over(context.mesh).sharding for leaf in found.sharding.leaves))


def _leafwise(sharding: HloSharding, change: Any) -> HloSharding:
    leaves = [change(leaf) if leaf.kind == "tiled" else leaf for leaf in sharding.without_names().leaves]
    return HloSharding.tuple(leaves) if sharding.is_tuple() else leaves[0]


def _listed(leaf: HloSharding) -> HloSharding:
    if leaf.tiles.num_elements == 1:
        raise ShardingError(f"V1 has no tiling over one device: {leaf}", remedy="write {replicated}")
    return _respelled(leaf, TileAssignment.from_flat(leaf.tiles.dims, leaf.tiles.flat))


def _as_iota(leaf: HloSharding) -> HloSharding:
    if leaf.tiles.meaning.iota is None:
        order = ",".join(map(str, leaf.tiles.flat[:20]))
        raise ShardingError(f"V2 cannot say the order of devices {order}: it is no transposed iota", remedy="use v1")
    return _respelled(leaf, leaf.tiles.meaning)


def _respelled(leaf: HloSharding, tiles: TileAssignment) -> HloSharding:
    return HloSharding.from_parts("tiled", tiles, leaf.subgroup_types, shard_group=leaf.shard_group)
