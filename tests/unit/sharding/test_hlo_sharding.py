"""The value: normal form, questions, counts, equality by meaning, tuples, metadata, shard groups."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from hlosharding.errors import ShardingError
from hlosharding.ir import Shape
from hlosharding.sharding import (
    HloSharding,
    OpMetadata,
    ShardGroup,
    TileAssignment,
    required_leaves,
    sub_sharding,
    untile_shape,
)

parse = HloSharding.parse
A, B = OpMetadata(op_name="a"), OpMetadata(op_name="b")


def test_replicated():
    s = HloSharding.replicate()
    assert s.is_replicated()
    assert s.is_tile_maximal()
    assert not s.is_tiled()
    assert s.is_spatially_partitioned()
    assert s.uses_device(0)
    assert s.uses_device(65535)
    assert not s.has_unique_device()
    assert s.num_tiles == s.total_num_tiles == 1
    assert s.num_devices is None
    assert s.num_tiles_along(3) == 1
    assert s != HloSharding.maximal(0)


def test_one_device():
    s = HloSharding.maximal(5)
    assert not s.is_replicated()
    assert s.is_tile_maximal()
    assert s.is_maximal()
    assert not s.is_spatially_partitioned()
    assert not s.uses_device(0)
    assert s.uses_device(5)
    assert s.device == 5
    assert s == HloSharding.maximal(5)
    assert s != HloSharding.maximal(4)


@pytest.mark.parametrize("kind", ["manual", "unknown", "unreduced"])
def test_whole_kinds(kind):
    s = getattr(HloSharding, kind)()
    assert s.kind == kind
    assert getattr(s, f"is_{kind}")()
    assert not s.is_tile_maximal()
    assert not s.is_tiled()
    assert str(s) == f"{{{kind}}}"
    assert s.num_tiles == 1
    with pytest.raises(ShardingError, match="no tile assignment"):
        _ = s.tiles


def test_tiled_counts():
    s = parse("{devices=[2,3,4,2]<=[48] last_tile_dims={manual, replicated}}")
    assert s.is_tiled()
    assert s.data_dims == (2, 3)
    assert s.tiled_data_rank == 2
    assert (s.num_tiles, s.total_num_tiles, s.num_devices) == (6, 48, 48)
    assert s.subgroup_types == ("manual", "replicated")
    assert (s.subgroup_size("manual"), s.subgroup_size("replicated"), s.subgroup_size("unreduced")) == (4, 2, 1)
    assert (s.subgroup_dim("manual"), s.subgroup_dim("replicated"), s.subgroup_dim("unreduced")) == (2, 3, None)
    assert s.is_manual_subgroup()
    assert s.has_partial_replication()
    assert not s.replicate_on_last_tile_dim
    assert not s.is_unreduced_subgroup()
    assert s.num_tiles_along(1) == 3


# What each of these becomes was asked of the parser of jaxlib 0.10.2.
@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("{devices=[2,1]<=[2] last_tile_dim_replicate}", "{devices=[2]<=[2]}"),
        ("{devices=[1,4]<=[4] last_tile_dim_replicate}", "{replicated}"),
        ("{devices=[2,2]3,1,2,0 last_tile_dim_replicate}", "{devices=[2,2]1,3,0,2 last_tile_dim_replicate}"),
        ("{devices=[1,2]<=[2] last_tile_dims={manual}}", "{manual}"),
        ("{devices=[1,2]<=[2] last_tile_dims={unreduced}}", "{unreduced}"),
        ("{devices=[1,1,2]<=[2] last_tile_dims={manual, replicated}}", "{replicated}"),
        ("{devices=[1,2,1]<=[2] last_tile_dims={manual, replicated}}", "{manual}"),
        (
            "{devices=[1,2,1]<=[2] last_tile_dims={unreduced, replicated}}",
            "{devices=[1,2]<=[2] last_tile_dims={unreduced}}",
        ),
        ("{devices=[2,1]<=[2] last_tile_dims={replicated, replicated}}", "{replicated}"),
        ("{devices=[2,1]<=[2] last_tile_dims={}}", "{devices=[2,1]<=[2]}"),
        (
            "{devices=[1,2,2]<=[4] last_tile_dims={replicated, manual}}",
            "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dims={manual, replicated}}",
        ),
        (
            "{devices=[2,2,2,2]<=[16] last_tile_dims={replicated, unreduced, manual}}",
            "{devices=[2,2,2,2]<=[2,2,2,2]T(0,3,2,1) last_tile_dims={manual, unreduced, replicated}}",
        ),
        (
            "{devices=[2,2,2,2]<=[16] last_tile_dims={manual, replicated, manual}}",
            "{devices=[2,4,2]<=[4,2,2]T(0,2,1) last_tile_dims={manual, replicated}}",
        ),
        (
            "{devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
            "{devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
        ),
        (
            "{devices=[2,4]<=[2,2,2]T(2,1,0) last_tile_dim_replicate}",
            "{devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
        ),
        (
            "{devices=[4,3]<=[4,3]T(1,0) last_tile_dim_replicate}",
            "{devices=[4,3]0,3,6,1,4,9,2,7,10,5,8,11 last_tile_dim_replicate}",
        ),
    ],
)
def test_normal_form(given, normal):
    assert str(parse(given)) == normal


def test_spellings_are_equal_and_hash_alike():
    pairs = [
        ("{devices=[2,2]0,1,2,3}", "{devices=[2,2]<=[4]}"),
        ("{devices=[2,2]0,2,1,3}", "{devices=[2,2]<=[2,2]T(1,0)}"),
        ("{devices=[2,2]1,0,2,3 last_tile_dim_replicate}", "{devices=[2,2]<=[4] last_tile_dim_replicate}"),
        ("{mesh['a'=2,'b'=2], [{'b'}, {'a'}]}", "{devices=[2,2]0,2,1,3}"),
        ('{devices=[2]<=[2] metadata={op_name="a"}}', "{devices=[2]0,1}"),
        ("{{replicated}, {devices=[2]0,1}}", "{{replicated}, {devices=[2]<=[2]}}"),
    ]
    for left, right in pairs:
        a, b = parse(left), parse(right)
        assert a == b
        assert hash(a) == hash(b)
        assert a is not b
        assert len({a, b}) == 1


def test_different_layouts_differ():
    texts = [
        "{replicated}",
        "{manual}",
        "{maximal device=0}",
        "{maximal device=1}",
        "{devices=[2,2]<=[4]}",
        "{devices=[4,1]<=[4]}",
        "{devices=[2,2]<=[2,2]T(1,0)}",
        "{devices=[2,2]<=[4] last_tile_dim_replicate}",
        "{devices=[2,2]<=[4] last_tile_dims={manual}}",
        "{devices=[2,2]<=[4] shard_as 1}",
        "{devices=[2,2]<=[4] shard_like 1}",
        "{devices=[2,2]<=[4] shard_as 2}",
        "{{replicated}}",
        "{{replicated}, {replicated}}",
        "{}",
    ]
    assert len({parse(t) for t in texts}) == len(texts)
    assert parse("{replicated}") != "{replicated}"


def test_values_are_interned_by_spelling_and_immutable():
    text = '{devices=[2,2]<=[4] metadata={op_name="a"}}'
    s = parse(text)
    assert parse(text) is s
    assert pickle.loads(pickle.dumps(s)) is s
    assert copy.deepcopy(s) is s
    assert pickle.loads(pickle.dumps(parse("{mesh['a'=2], [{'a'}]}"))) is parse("{mesh['a'=2], [{'a'}]}")
    with pytest.raises(AttributeError):
        s.kind = "manual"


def test_constructors_refuse_contradictions():
    for make in (
        lambda: HloSharding.tile([[0, 1], [1, 2]]),
        lambda: HloSharding.tile([0, -1]),
        lambda: HloSharding.subgroup(np.arange(4).reshape(2, 2), ["sharded"]),
        lambda: HloSharding.subgroup([0, 1], ["manual", "replicated"]),
        lambda: HloSharding.iota_tile((2, 2), (3,)),
        lambda: HloSharding.tuple([HloSharding.tuple([])]),
    ):
        with pytest.raises(ShardingError):
            make()


def test_constructors_take_arrays_lists_and_assignments():
    tiles = np.arange(4).reshape(2, 2)
    assert HloSharding.tile(tiles) == HloSharding.tile([[0, 1], [2, 3]]) == HloSharding.iota_tile((2, 2))
    assert HloSharding.tile(TileAssignment.from_iota((2, 2))) is HloSharding.iota_tile((2, 2))
    assert HloSharding.partial_tile(tiles) == HloSharding.subgroup(tiles, ["replicated"])


def test_tuples():
    r, t = HloSharding.replicate(), HloSharding.iota_tile((2,))
    s = HloSharding.tuple([r, t])
    assert s.is_tuple()
    assert s.leaves == (r, t)
    assert s.leaf(1) is t
    assert t.leaf(7) is t
    assert t.leaves == (t,)
    assert not s.is_replicated()
    assert HloSharding.tuple([r, r]).is_replicated()
    assert HloSharding.tuple([HloSharding.manual()] * 2).is_manual()
    assert HloSharding.tuple([r, HloSharding.maximal(1)]).is_tile_maximal()
    assert s.is_tiled()
    assert s.num_devices == 2
    assert s.with_leaf(0, t) == HloSharding.single_tuple(t, 2)
    assert s.normalize_tuple(2) is s
    assert r.normalize_tuple(2) == HloSharding.tuple([r, r])
    assert HloSharding.single_tuple(r, 0) == HloSharding.tuple([r])
    assert s.extract_single() is None
    assert HloSharding.tuple([r, r]).extract_single() is r
    assert HloSharding.tuple([]).extract_single() is None
    assert r.extract_single() is r
    with pytest.raises(ShardingError, match="asked for number 2"):
        s.leaf(2)


def test_devices_of_tuples():
    one, two, r = HloSharding.maximal(1), HloSharding.maximal(2), HloSharding.replicate()
    assert HloSharding.tuple([one, one]).device == 1
    assert HloSharding.tuple([one, two]).device is None
    assert HloSharding.tuple([one, r]).device is None
    assert not HloSharding.tuple([one, one]).is_spatially_partitioned()
    assert HloSharding.tuple([one, r]).is_spatially_partitioned()
    assert HloSharding.tuple([one, two]).uses_device(2)
    assert not HloSharding.tuple([one, two]).uses_device(3)
    assert HloSharding.iota_tile((2,)).uses_device(1)
    assert not HloSharding.iota_tile((2,)).uses_device(2)


def test_metadata_rides_along_and_does_not_count():
    s = HloSharding.iota_tile((2,))
    named = s.with_metadata([A])
    assert named == s
    assert named is not s
    assert named.metadata == (A,)
    assert named.with_metadata([B], overwrite=False) is named
    assert named.with_metadata([B]).metadata == (B,)
    assert named.without_metadata() is s
    both = HloSharding.tuple([named, s]).with_metadata([B], overwrite=False)
    assert [e.metadata for e in both.tuple_elements] == [(A,), (B,)]
    assert [e.metadata for e in both.with_metadata([A]).tuple_elements] == [(A,), (A,)]
    assert [e.metadata for e in both.without_metadata().tuple_elements] == [(), ()]


def test_shard_groups_count():
    s = HloSharding.iota_tile((2,))
    group = s.with_shard_group(ShardGroup("as", 3))
    assert group != s
    assert str(group) == "{devices=[2]<=[2] shard_as 3}"
    assert group.with_shard_group(None) is s
    assert hash(group) != hash(s)


# ---- tiles of even and uneven arrays, device by device, and what validate refuses


def test_offsets_of_every_device():
    s = HloSharding.tile([[[0, 3], [2, 1]]])
    assert [s.tile_offset((4, 5, 7), d) for d in range(4)] == [(0, 0, 0), (0, 3, 4), (0, 3, 0), (0, 0, 4)]
    assert [s.tile_limit((4, 5, 7), d) for d in range(4)] == [(4, 3, 4), (4, 5, 7), (4, 5, 4), (4, 3, 7)]
    assert s.tile_shape((4, 5, 7)) == (4, 3, 4)
    assert s.tile_shape((4, 5, 7), 1) == (4, 2, 3)
    assert s.tile_index(2) == (0, 1, 0)
    assert s.device_for_tile((0, 1, 0)) == 2


def test_the_last_tiles_of_an_uneven_dim_may_be_empty():
    s = parse("{devices=[4]<=[4]}")
    assert [s.tile_shape((5,), d) for d in range(4)] == [(2,), (2,), (1,), (0,)]
    assert [s.tile_offset((5,), d) for d in range(4)] == [(0,), (2,), (4,), (5,)]
    assert s.tile_limit((0,), 3) == (0,)


def test_subgroups_share_a_tile():
    s = parse("{devices=[2,2]0,2,1,3 last_tile_dim_replicate}")
    assert [s.tile_index(d) for d in range(4)] == [(0,), (1,), (0,), (1,)]
    assert s.device_for_tile((1,)) == 1
    assert s.device_for_tile((1, 1)) == 3


def test_the_tiles_put_together_are_the_array():
    s = parse("{devices=[3,2,2]<=[2,6]T(1,0) last_tile_dim_replicate}")
    found = np.zeros((7, 5), int)
    for device in range(12):
        start, end = s.tile_offset((7, 5), device), s.tile_limit((7, 5), device)
        found[start[0] : end[0], start[1] : end[1]] += 1
    assert (found == 2).all()


def test_whole_kinds_have_the_whole():
    for s in (HloSharding.replicate(), HloSharding.maximal(2)):
        assert s.tile_shape((4, 5), 2) == (4, 5)
        assert s.tile_offset((4, 5), 2) == (0, 0)
        assert s.tile_limit((4, 5), 2) == (4, 5)
    assert HloSharding.manual().tile_shape((4, 5)) == (4, 5)
    assert HloSharding.maximal(2).device_for_tile((0, 0)) == 2
    assert untile_shape(HloSharding.manual(), (2,)) == (2,)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: HloSharding.manual().tile_offset((4,), 0),
        lambda: HloSharding.replicate().tile_index(0),
        lambda: parse("{devices=[2]<=[2]}").tile_index(2),
        lambda: parse("{devices=[2]<=[2]}").device_for_tile((2,)),
        lambda: parse("{devices=[2]<=[2]}").device_for_tile((0, 0)),
        lambda: parse("{devices=[2]<=[2]}").tile_shape((2, 2)),
        lambda: HloSharding.tuple([]).tile_shape((2,)),
    ],
)
def test_questions_without_an_answer_are_refused(ask):
    with pytest.raises(ShardingError):
        ask()


@pytest.mark.parametrize(
    ("text", "shape", "devices"),
    [
        ("{devices=[2,2]<=[4]}", (4, 4), 4),
        ("{devices=[2,2]<=[4]}", (4, 4), None),
        ("{devices=[2,2]<=[4] last_tile_dim_replicate}", (4,), 4),
        ("{devices=[3]<=[3]}", (2,), 3),
        ("{replicated}", (), 4),
        ("{manual}", (3,), 1),
        ("{maximal device=3}", (3,), 4),
        ("{{replicated}, {devices=[2]<=[2]}}", ((), (4,)), 2),
        ("{{replicated}, {devices=[2]<=[2]}}", ((), ((4,),)), 2),
        ("{{replicated}}", [], 2),
        ("{}", [], 2),
        ("{devices=[2,2]<=[4]}", None, 4),
        ("{{replicated}, {replicated}}", (None, (4,)), 2),
        ("{{replicated}, {devices=[2]<=[2]}}", Shape.parse("(f32[], s32[4])"), 2),
        ("{devices=[2]<=[2]}", Shape.parse("f32[4]"), 2),
        ("{replicated}", Shape.parse("token[]"), 2),
    ],
)
def test_validate_accepts(text, shape, devices):
    parse(text).validate(shape, devices)


@pytest.mark.parametrize(
    ("text", "shape", "devices", "message"),
    [
        ("{devices=[2,2]<=[4]}", (4,), 4, "splits 2 dims"),
        ("{devices=[2,2]<=[4]}", (4, 4), 8, "uses 4 devices, there are 8"),
        ("{devices=[2,2]<=[4]}", (4, 4), 2, "uses device 3, there are 2"),
        ("{devices=[2]0,5}", (4,), 2, "uses device 5"),
        ("{maximal device=3}", (4,), 3, "uses device 3"),
        ("{{replicated}, {replicated}}", (4,), 2, "is of a tuple"),
        ("{replicated}", ((4,), (4,)), 2, "a tuple of 2 leaves"),
        ("{{replicated}}", ((4,), (4,)), 2, "has 1 leaves, the shape has 2"),
        ("{{replicated}, {devices=[2]<=[2]}}", ((4,), (4, 4)), 2, "leaf 1 of the tuple"),
        ("{{replicated}, {replicated}}", [], 2, "the shape has 0"),
        ("{devices=[2]<=[2]}", Shape.parse("f32[4,4]"), 2, "splits 1 dims"),
    ],
)
def test_validate_refuses(text, shape, devices, message):
    with pytest.raises(ShardingError, match=message):
        parse(text).validate(shape, devices)


def test_one_device_cannot_be_tiled_over():
    with pytest.raises(ShardingError, match="use replicated"):
        HloSharding.iota_tile((1, 1)).validate((4, 4), 1)


def test_parts_of_tuples():
    leaves = [HloSharding.maximal(d) for d in range(4)]
    s, shape = HloSharding.tuple(leaves), ((2,), ((3,), [], (4,)), (5,))
    assert required_leaves(shape) == 4
    assert sub_sharding(s, shape, (0,)) is leaves[0]
    assert sub_sharding(s, shape, (1, 2)) is leaves[2]
    assert sub_sharding(s, shape, (2,)) is leaves[3]
    assert sub_sharding(s, shape, (1,)) == HloSharding.tuple(leaves[1:3])
    assert sub_sharding(s, shape, ()) is s
    assert sub_sharding(leaves[0], shape, (1, 0)) is leaves[0]
    with pytest.raises(ShardingError, match="no part"):
        sub_sharding(s, shape, (0, 0))
