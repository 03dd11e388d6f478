"""Tiles of even and uneven arrays, device by device, and what validate refuses."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.errors import ShardingError
from hlosharding.ir import Shape
from hlosharding.sharding import HloSharding, required_leaves, sub_sharding, untile_shape

parse = HloSharding.parse


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
