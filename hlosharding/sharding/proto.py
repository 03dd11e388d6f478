"""Shardings as `xla.OpSharding` messages.

Floor: sharding.  The message classes come from `wire`; unknown fields of metadata are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hlosharding import wire
from hlosharding.errors import ShardingError
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.metadata import NUMBERS, STRINGS, OpMetadata, ShardGroup
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm
from hlosharding.sharding.subgroups import Kind, SubgroupType
from hlosharding.sharding.tile_assignment import TileAssignment, count_devices
from hlosharding.sharding.value import S, ShardingValue

_TYPES: dict[Kind, int] = {
    "replicated": 0, "maximal": 1, "tuple": 2, "tiled": 3, "manual": 4, "unknown": 5, "unreduced": 6,
}  # fmt: skip
_KINDS: dict[int, Kind] = {number: kind for kind, number in _TYPES.items()}
_SUBGROUPS: dict[int, SubgroupType] = {0: "replicated", 4: "manual", 6: "unreduced"}
_READ_FIELDS = (*STRINGS, *NUMBERS)


def to_proto(sharding: ShardingValue) -> Any:
    """The `wire.OpSharding` message.

    >>> from hlosharding.sharding import HloSharding
    >>> to_proto(HloSharding.iota_tile((2, 2))).iota_reshape_dims[:]
    [4]
    """
    result = wire.OpSharding(type=_TYPES[sharding.kind])
    if sharding.kind == "tuple":
        result.tuple_shardings.extend(to_proto(e) for e in sharding.tuple_elements)
        return result
    if sharding.named_form is not None:
        result = wire.OpSharding()
        fill_named(result.named_sharding, sharding.named_form)
        result.named_sharding.metadata.extend(map(_metadata_to_proto, sharding.metadata))
        return result
    result.metadata.extend(map(_metadata_to_proto, sharding.metadata))
    if sharding.tile_assignment is not None:
        _fill_tiles(result, sharding)
    if sharding.shard_group is not None:
        result.is_shard_group = True
        result.shard_group_id = sharding.shard_group.number
        result.shard_group_type = 0 if sharding.shard_group.kind == "as" else 1
    return result


def _fill_tiles(result: Any, sharding: ShardingValue) -> None:
    tiles = sharding.tiles
    if sharding.kind != "maximal":
        result.tile_assignment_dimensions.extend(tiles.dims)
    if tiles.iota is not None:
        result.iota_reshape_dims.extend(tiles.iota.reshape_dims)
        result.iota_transpose_perm.extend(tiles.iota.transpose_perm)
    else:
        result.tile_assignment_devices.extend(tiles.flat)
    if sharding.replicate_on_last_tile_dim:
        result.replicate_on_last_tile_dim = True
    else:
        codes = {kind: number for number, kind in _SUBGROUPS.items()}
        result.last_tile_dims.extend(codes[t] for t in sharding.subgroup_types)


def _metadata_to_proto(metadata: OpMetadata) -> Any:
    message = wire.OpMetadata()
    message.MergeFromString(metadata.rest)
    for name in _READ_FIELDS:
        if getattr(metadata, name):
            setattr(message, name, getattr(metadata, name))
    return message


def metadata_from_proto(message: Any) -> OpMetadata:
    """The value of an `OpMetadata` message, fields that we do not read kept as bytes."""
    rest = wire.OpMetadata()
    rest.CopyFrom(message)
    for name in _READ_FIELDS:
        rest.ClearField(name)
    return OpMetadata(
        **{name: getattr(message, name) for name in _READ_FIELDS},
        rest=bytes(rest.SerializeToString(deterministic=True)),
    )


def from_proto(cls: type[S], proto: Any) -> S:
    """From an `OpSharding` (ours or jaxlib's) or its bytes; raises ShardingError for contradictions.

    >>> from hlosharding.sharding import HloSharding
    >>> from_proto(HloSharding, to_proto(HloSharding.replicate())).is_replicated()
    True
    """
    if not isinstance(proto, bytes | bytearray | memoryview | wire.OpSharding):
        if not hasattr(proto, "SerializeToString"):
            raise ShardingError(f"{type(proto).__name__} is no OpSharding message", remedy="pass one, or its bytes")
        proto = proto.SerializeToString()
    if not isinstance(proto, wire.OpSharding):
        message = wire.OpSharding()
        try:
            message.ParseFromString(bytes(proto))
        except Exception as error:
            raise ShardingError(f"these {len(proto)} bytes are no OpSharding message: {error}") from error
        proto = message
    if proto.HasField("named_sharding"):
        metadata = tuple(map(metadata_from_proto, proto.named_sharding.metadata))
        return read_named(cls, proto.named_sharding).with_metadata(metadata)
    if proto.type == _TYPES["tuple"]:
        return cls.tuple(from_proto(cls, element) for element in proto.tuple_shardings)
    return _leaf(cls, proto).with_shard_group(_shard_group(proto))


def _shard_group(proto: Any) -> ShardGroup | None:
    if not proto.is_shard_group:
        return None
    return ShardGroup("as" if proto.shard_group_type == 0 else "like", proto.shard_group_id)


def _leaf(cls: type[S], proto: Any) -> S:
    kind = _KINDS.get(proto.type)
    metadata = tuple(map(metadata_from_proto, proto.metadata))
    if kind is None:
        raise ShardingError(f"OpSharding type {proto.type} is not known")
    if kind in ("replicated", "manual", "unknown", "unreduced"):
        return cls.from_parts(kind, metadata=metadata)
    # As XLA's FromProto: one device, however spelled, is a device placement.
    if len(proto.tile_assignment_devices) == 1:
        return cls.maximal(proto.tile_assignment_devices[0], metadata)
    if proto.iota_reshape_dims and math.prod(proto.iota_reshape_dims) == 1:
        return cls.maximal(0, metadata)
    if kind == "maximal":
        raise ShardingError(f"a maximal OpSharding takes one device, got {len(proto.tile_assignment_devices)}")
    return _tiled(cls, proto, metadata)


def _tiled(cls: type[S], proto: Any, metadata: tuple[OpMetadata, ...]) -> S:
    dims = tuple(proto.tile_assignment_dimensions)
    # For its error, before anything is made: a stranger's message may name more devices than can be listed.
    count_devices(dims)
    if proto.iota_reshape_dims:
        if proto.tile_assignment_devices:
            raise ShardingError("an OpSharding with both a device list and an iota")
        perm = tuple(proto.iota_transpose_perm)
        tiles = TileAssignment.from_iota(dims, tuple(proto.iota_reshape_dims), perm)
    else:
        tiles = TileAssignment.from_flat(dims, tuple(proto.tile_assignment_devices))
    if proto.replicate_on_last_tile_dim:
        if proto.last_tile_dims:
            raise ShardingError("an OpSharding with both replicate_on_last_tile_dim and last_tile_dims")
        return cls.partial_tile(tiles, metadata)
    unknown = [number for number in proto.last_tile_dims if number not in _SUBGROUPS]
    if unknown:
        raise ShardingError(f"OpSharding last_tile_dims of type {unknown[0]} are not known")
    return cls.subgroup(tiles, [_SUBGROUPS[number] for number in proto.last_tile_dims], metadata)


# ---- named shardings as messages (field 14 of `xla.OpSharding`)


def fill_named(message: Any, form: NamedForm) -> None:
    """Write `form` into an empty NamedShardingProto."""
    if form.whole == "maximal":
        message.mesh.device_ids.append(form.device or 0)
        return
    _fill_mesh(message.mesh, form.mesh)
    if form.whole in ("manual", "unreduced"):
        # As XLA: a wholly manual or unreduced sharding lists all axes of its mesh.
        axes = message.manual_axes if form.whole == "manual" else message.unreduced_axes
        _fill_axes(axes, map(AxisRef, form.mesh.names), form.mesh)
        return
    for dim in form.dims:
        entry = message.dim_shardings.add(is_closed=not dim.is_open)
        _fill_axes(entry.axes, dim.axes, form.mesh)
    _fill_axes(message.replicated_axes, form.replicated, form.mesh)
    _fill_axes(message.unreduced_axes, form.unreduced, form.mesh)
    _fill_axes(message.manual_axes, form.manual, form.mesh)


def _fill_mesh(message: Any, mesh: MeshInfo) -> None:
    for name, size in zip(mesh.names, mesh.sizes, strict=True):
        message.axes.add(name=name, size=size)
    # A mesh without axes writes nothing by itself, and readers know a named sharding by its field being there.
    message.SetInParent()
    if mesh.is_plain:
        return
    if mesh.assignment.iota is not None:
        message.iota_transform.reshape_dims.extend(mesh.assignment.iota.reshape_dims)
        message.iota_transform.transpose_perm.extend(mesh.assignment.iota.transpose_perm)
    else:
        message.device_ids.extend(mesh.device_ids)


def _fill_axes(repeated: Any, axes: Iterable[AxisRef], mesh: MeshInfo) -> None:
    for axis in axes:
        entry = repeated.add(mesh_axis_index=mesh.index_of(axis.name))
        if axis.size is not None:
            entry.sub_axis_info.pre_size = axis.pre_size
            entry.sub_axis_info.size = axis.size


def read_named(cls: type[S], message: Any) -> S:
    """The sharding of a NamedShardingProto, less metadata; raises ShardingError for contradictions."""
    if not message.mesh.axes and message.mesh.device_ids:
        if len(message.mesh.device_ids) != 1:
            raise ShardingError(f"a mesh without axes names one device, got {len(message.mesh.device_ids)}")
        return cls.from_named_form(NamedForm(MeshInfo((), ()), whole="maximal", device=message.mesh.device_ids[0]))
    mesh = _read_mesh(message.mesh)
    dims = tuple(DimAxes(_read_axes(d.axes, mesh), not d.is_closed) for d in message.dim_shardings)
    replicated, unreduced = _read_axes(message.replicated_axes, mesh), _read_axes(message.unreduced_axes, mesh)
    manual = _read_axes(message.manual_axes, mesh)
    return cls.from_named_form(NamedForm(mesh, dims, replicated, unreduced, manual))


def _read_mesh(message: Any) -> MeshInfo:
    names, sizes = [axis.name for axis in message.axes], [axis.size for axis in message.axes]
    if message.HasField("iota_transform"):
        iota = message.iota_transform
        return MeshInfo(names, sizes, TileAssignment.from_iota(sizes, iota.reshape_dims, iota.transpose_perm))
    return MeshInfo(names, sizes, tuple(message.device_ids) or None)


def _read_axes(repeated: Any, mesh: MeshInfo) -> tuple[AxisRef, ...]:
    found: list[AxisRef] = []
    for entry in repeated:
        if not 0 <= entry.mesh_axis_index < len(mesh.names):
            raise ShardingError(f"axis number {entry.mesh_axis_index} of a mesh with {len(mesh.names)} axes")
        sub = entry.sub_axis_info if entry.HasField("sub_axis_info") else None
        name = mesh.names[entry.mesh_axis_index]
        found.append(AxisRef(name, sub.pre_size, sub.size) if sub is not None else AxisRef(name))
    return tuple(found)
