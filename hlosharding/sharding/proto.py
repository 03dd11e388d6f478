"""Shardings as `xla.OpSharding` messages.

Floor: sharding.  The message classes come from `wire`; unknown fields of metadata are kept.
"""

from __future__ import annotations

import math
from typing import Any

from hlosharding import wire
from hlosharding.errors import ShardingError
from hlosharding.sharding.device_count import count_devices
from hlosharding.sharding.metadata import NUMBERS, STRINGS, OpMetadata, ShardGroup
from hlosharding.sharding.named_proto import fill_named, read_named
from hlosharding.sharding.subgroups import Kind, SubgroupType
from hlosharding.sharding.tile_assignment import TileAssignment
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
