"""Shardings as xla.OpSharding messages."""

from __future__ import annotations

import pytest

from hlosharding import wire
from hlosharding.errors import ShardingError
from hlosharding.sharding import HloSharding

parse, from_proto = HloSharding.parse, HloSharding.from_proto

TEXTS = [
    "{replicated}",
    "{manual}",
    "{unknown}",
    "{unreduced}",
    "{maximal device=3}",
    "{maximal device=0}",
    "{devices=[2,2]0,2,1,3}",
    "{devices=[4,2]<=[2,4]T(1,0)}",
    "{devices=[2,2,2]<=[8] last_tile_dim_replicate}",
    "{devices=[1,2,2,2]<=[8] last_tile_dims={manual, unreduced, replicated}}",
    "{}",
    "{{replicated}, {devices=[2]<=[2]}}",
    "{replicated shard_as 1}",
    "{devices=[2]<=[2] shard_like 7}",
    '{devices=[2]<=[2] metadata={op_type="dot" op_name="a" source_file="m.py" source_line=3 stack_frame_id=7}}',
    '{replicated metadata={{op_name="a"}, {op_name="b" source_end_line=4 source_column=5 source_end_column=6}}}',
    "{mesh['a'=2,'b'=4], [{'b':(2)2}, {'a', ?}]}",
    "{mesh['a'=2,'b'=4], [{}, {}], replicated={'a'}, manual={'b'}}",
    "{mesh['a'=2,'b'=4], [{'a'}], unreduced={'b':(2)2}, metadata={{op_name=\"x\"}}}",
    "{mesh['a'=2,'b'=4], manual}",
    "{mesh['a'=2,'b'=4], unreduced}",
    "{mesh['a'=2,'b'=4], replicated}",
    "{mesh[], replicated}",
    "{maximal_mesh[device_id=3]}",
    "{mesh['a'=2,'b'=2], device_ids=(3,2,1,0), [{'a'}]}",
    "{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}, {'b'}]}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(text):
    s = parse(text)
    assert from_proto(s.to_proto()) is s


def test_fields():
    message = wire.OpSharding()
    message.ParseFromString(parse("{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}").to_proto())
    assert message.type == 3
    assert list(message.tile_assignment_dimensions) == [4, 2]
    assert list(message.iota_reshape_dims) == [2, 4]
    assert list(message.iota_transpose_perm) == [1, 0]
    assert message.replicate_on_last_tile_dim
    assert not message.tile_assignment_devices


def test_unknown_metadata_fields_survive():
    # Field 100, which nobody has: tag (100 << 3 | 2), length 2, "hi".
    metadata = wire.OpMetadata()
    metadata.ParseFromString(b"\x12\x01a" + b"\xa2\x06\x02hi")
    message = wire.OpSharding(type=0)
    message.metadata.append(metadata)
    s = from_proto(message)
    assert s.metadata[0].op_name == "a"
    assert s.to_proto() == message.SerializeToString(deterministic=True)


def test_one_device_however_spelled_is_a_placement():
    assert from_proto(wire.OpSharding(type=3, tile_assignment_dimensions=[1], tile_assignment_devices=[5])).device == 5
    one = wire.OpSharding(type=3, tile_assignment_dimensions=[1, 1], iota_reshape_dims=[1], iota_transpose_perm=[0])
    assert from_proto(one).device == 0


def tiled(dims, **fields):
    return {"type": 3, "tile_assignment_dimensions": dims, **fields}


LISTED = {"tile_assignment_devices": [0, 1]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": 9}, "type 9"),
        ({"type": 1}, "takes one device"),
        (tiled([2, 2], tile_assignment_devices=[0, 1, 2]), "needs 4 devices"),
        (tiled([4], tile_assignment_devices=[0, 1, 1, 2]), "occurs 2 times"),
        (tiled([4]), "needs 4 devices"),
        (tiled([4], iota_reshape_dims=[8], iota_transpose_perm=[0]), "4 tiles"),
        (tiled([4], iota_reshape_dims=[2, 2], iota_transpose_perm=[0]), "no permutation"),
        (tiled([2], iota_reshape_dims=[2], iota_transpose_perm=[0], **LISTED), "both a device list and an iota"),
        (tiled([2], last_tile_dims=[5], **LISTED), "type 5"),
        (tiled([2], last_tile_dims=[4], replicate_on_last_tile_dim=True, **LISTED), "both replicate"),
    ],
)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(ShardingError, match=message):
        from_proto(wire.OpSharding(**fields))


def test_bytes_that_are_no_message():
    with pytest.raises(ShardingError, match="no OpSharding"):
        from_proto(b"\xff\xff\xff")


def test_named_contradictions_are_refused():
    message = wire.OpSharding()
    message.named_sharding.mesh.axes.add(name="a", size=2)
    message.named_sharding.dim_shardings.add(is_closed=True).axes.add(mesh_axis_index=3)
    with pytest.raises(ShardingError, match="axis number 3"):
        from_proto(message)
    empty = wire.OpSharding()
    empty.named_sharding.mesh.device_ids.extend([0, 1])
    with pytest.raises(ShardingError, match="names one device"):
        from_proto(empty)


def test_jaxlib_s_own_message_is_read():
    from jax._src.lib import xla_client

    message = xla_client.HloSharding.from_string("{devices=[2,2]<=[4]}").to_proto()
    assert str(HloSharding.from_proto(message)) == "{devices=[2,2]<=[4]}"


def test_what_is_no_message_is_named():
    with pytest.raises(ShardingError, match="int is no OpSharding message"):
        HloSharding.from_proto(3)
