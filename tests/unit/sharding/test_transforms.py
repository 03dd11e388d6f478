"""Tiles moved between dims.  Expected: hand reasoning and XLA's own tests; tests/oracle has many from live XLA."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.errors import ShardingError
from hlosharding.sharding import (
    HloSharding,
    add_shape_dims,
    along_dims,
    first_target_dim,
    merge_dimension,
    move_and_merge_tiles,
    remove_shape_dims,
    replicate_all_data_dims,
    replicate_on_all_dims_except,
    replicate_on_dims,
    reshape_to_tile_dimension,
    reverse_sharding,
    split_dimension,
    transpose_sharding,
    transpose_with_collapsed_dims,
)

parse = HloSharding.parse
WHOLE = [parse(t) for t in ("{replicated}", "{maximal device=2}", "{manual}", "{unknown}", "{unreduced}")]


@pytest.mark.parametrize("whole", WHOLE, ids=str)
def test_nothing_to_move(whole):
    assert transpose_sharding(whole, (1, 0)) is whole
    assert transpose_with_collapsed_dims(whole, (-1,), (-1,)) is whole
    assert reverse_sharding(whole, (0,)) is whole
    assert remove_shape_dims(whole, (0,)) is whole
    assert add_shape_dims(whole, 0, 1) is whole
    assert replicate_on_dims(whole, (0,)) is whole
    assert replicate_on_all_dims_except(whole, (0,)) is whole
    assert along_dims(whole, (0,), (0,), 1) is whole


def test_transpose():
    assert transpose_sharding(HloSharding.tile([[[[0, 1]], [[2, 3]]]]), (3, 0, 1, 2)) == HloSharding.tile(
        np.array([[[[0, 1]], [[2, 3]]]]).transpose(3, 0, 1, 2)
    )
    partial = parse("{devices=[2,4,2]<=[16] last_tile_dim_replicate}")
    assert str(transpose_sharding(partial, (1, 0))) == "{devices=[4,2,2]<=[2,4,2]T(1,0,2) last_tile_dim_replicate}"
    assert transpose_sharding(partial, (1, 0, 2)) == transpose_sharding(partial, (1, 0))
    with pytest.raises(ShardingError):
        transpose_sharding(partial, (2, 0, 1))


def test_transpose_with_collapsed_dims():
    s = parse("{devices=[1,2,4]<=[2,4]T(1,0) last_tile_dims={manual}}")
    assert str(transpose_with_collapsed_dims(s, (-1, 2), (-1, -1, 1))) == (
        "{devices=[1,1,2,4]<=[2,4]T(1,0) last_tile_dims={manual}}"
    )
    assert transpose_with_collapsed_dims(s, (0, -1), (0,)) is None
    assert transpose_with_collapsed_dims(s, (-1, 2, 3), (-1, -1, 1, 2)) == transpose_with_collapsed_dims(
        s, (-1, 2), (-1, -1, 1)
    )


def test_reverse():
    assert str(reverse_sharding(HloSharding.iota_tile((2, 2)), (1,))) == "{devices=[2,2]1,0,3,2}"
    partial = parse("{devices=[2,2]<=[4] last_tile_dim_replicate}")
    assert str(reverse_sharding(partial, (0,))) == "{devices=[2,2]2,3,0,1 last_tile_dim_replicate}"
    assert reverse_sharding(partial, ()) is partial


def test_remove_and_add_dims():
    s = parse("{devices=[1,4,1,2]<=[8] last_tile_dim_replicate}")
    removed = remove_shape_dims(s, (0, 2))
    assert str(removed) == "{devices=[4,2]<=[8] last_tile_dim_replicate}"
    assert add_shape_dims(add_shape_dims(removed, 1, 1), 0, 1) == s
    assert str(add_shape_dims(removed, 1, 2)) == "{devices=[4,1,1,2]<=[8] last_tile_dim_replicate}"
    with pytest.raises(ShardingError, match="is split"):
        remove_shape_dims(s, (1,))


def test_split_and_merge_dims():
    s = parse("{devices=[8,2]<=[16]}")
    split = split_dimension(s, 0, 2)
    assert str(split) == "{devices=[2,4,2]<=[16]}"
    assert merge_dimension(split, 0) == s
    assert str(merge_dimension(split, 1)) == "{devices=[2,8]<=[16]}"
    for bad in (lambda: split_dimension(s, 0, 3), lambda: split_dimension(s, 2, 1), lambda: merge_dimension(s, 1)):
        with pytest.raises(ShardingError):
            bad()


def test_move_and_merge_tiles():
    # Tiles [a, b, c, d, e], dim 1 onto dim 3: [a, 1, c, d * b, e], b the minor part.
    tiles = np.arange(2 * 3 * 5 * 7 * 11).reshape(2, 3, 5, 7, 11)
    expected = HloSharding.partial_tile(tiles.transpose(0, 2, 3, 1, 4).reshape(2, 1, 5, 21, 11))
    assert move_and_merge_tiles(HloSharding.partial_tile(tiles), 1, 3) == expected
    backwards = HloSharding.partial_tile(
        tiles.transpose(0, 1, 3, 2, 4).reshape(2, 21, 5, 1, 11).reshape(2, 21, 5, 1, 11)
    )
    assert move_and_merge_tiles(HloSharding.partial_tile(tiles), 3, 1).data_dims == backwards.data_dims
    with pytest.raises(ShardingError, match="onto itself"):
        move_and_merge_tiles(HloSharding.iota_tile((2, 2)), 1, 1)


@pytest.mark.parametrize(
    ("dims", "tiles", "targets"),
    [
        ((1, 8, 128, 128), (8, 1, 2, 16), (None, None, 1, 2)),
        ((4, 8, 128, 128), (2, 2, 4, 16), (1, 0, 1, 2)),
        ((1, 128), (1, 2), (None, None)),
        ((1024,), (2,), (None,)),
    ],
)
def test_first_target_dim(dims, tiles, targets):
    s = HloSharding.iota_tile(tiles)
    assert tuple(first_target_dim(dims, s, d) for d in range(len(dims))) == targets
    assert first_target_dim((8, 128), HloSharding.replicate(), 0) is None


def test_first_target_dim_among_allowed_ones():
    s = HloSharding.iota_tile((2, 2, 2))
    assert first_target_dim((8, 8, 8), s, 0) == 1
    assert first_target_dim((8, 8, 8), s, 0, (2,)) == 2
    assert first_target_dim((8, 8, 8), s, 0, ()) is None


@pytest.mark.parametrize("tiles", [HloSharding.iota_tile((2, 2, 2)), HloSharding.tile(np.arange(8).reshape(2, 2, 2))])
def test_reshape_to_tile_dimension(tiles):
    for dim, dims, expected in (
        (0, (0, 1, 2), ((8, 1, 1), (8,), (0,))),
        (1, (0, 1, 2), ((1, 8, 1), (2, 2, 2), (1, 0, 2))),
        (2, (0, 1, 2), ((1, 1, 8), (4, 2), (1, 0))),
        (2, (1, 2), ((2, 1, 4), (2, 2, 2), (0, 2, 1))),
        (0, (0, 2), ((4, 2, 1), (2, 2, 2), (1, 0, 2))),
        (2, (0, 2), ((1, 2, 4), (2, 2, 2), (1, 2, 0))),
    ):
        assert reshape_to_tile_dimension(tiles, dim, dims) == HloSharding.iota_tile(*expected)
    with pytest.raises(ShardingError):
        reshape_to_tile_dimension(tiles, 0, (1, 2))


def test_replicate_on_dims():
    s = HloSharding.iota_tile((2, 4))
    assert replicate_on_dims(s, ()) is s
    assert str(replicate_on_dims(s, (1,))) == "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
    assert str(replicate_on_dims(s, (0,))) == "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"
    assert replicate_on_dims(s, (0, 1)).is_replicated()
    manual = parse("{devices=[2,2,2]<=[8] last_tile_dims={manual}}")
    both = replicate_on_dims(manual, (0, 1))
    assert str(both) == "{devices=[1,1,2,4]<=[4,2]T(1,0) last_tile_dims={manual, replicated}}"
    assert replicate_on_all_dims_except(manual, (0, 1)) is manual
    assert replicate_on_all_dims_except(s, (1,)) == replicate_on_dims(s, (0,))


def test_replicate_all_data_dims():
    manual = parse("{devices=[2,2,2]<=[8] last_tile_dims={manual}}")
    assert str(replicate_all_data_dims(manual, 3)) == (
        "{devices=[1,1,1,2,4]<=[4,2]T(1,0) last_tile_dims={manual, replicated}}"
    )
    assert replicate_all_data_dims(HloSharding.manual(), 1).is_manual()
    assert replicate_all_data_dims(HloSharding.iota_tile((2,)), 4).is_replicated()
    assert replicate_all_data_dims(HloSharding.maximal(1)).is_replicated()


def test_along_dims():
    s = HloSharding.iota_tile((2, 3, 5, 7, 11))
    expected = np.arange(2 * 3 * 5 * 7 * 11).reshape(2, 3, 5, 7, 11)
    forward = along_dims(s, (2, 4, 1), (2, 1, 3), 5)
    tiles = expected.transpose(4, 2, 1, 0, 3).reshape(1, 11, 5, 3, 1, 14)
    assert forward == HloSharding.partial_tile(tiles)
    assert along_dims(s, (), (), 3).is_replicated()
    assert str(along_dims(HloSharding.iota_tile((2, 4)), (0, 1), (1, 0), 2)) == "{devices=[4,2]<=[2,4]T(1,0)}"


def test_unreduced_subgroups_ride_along():
    s = parse("{devices=[2,2,2]<=[8] last_tile_dims={unreduced}}")
    assert str(transpose_sharding(s, (1, 0))) == "{devices=[2,2,2]<=[2,2,2]T(1,0,2) last_tile_dims={unreduced}}"
    assert replicate_on_dims(s, (0,)).subgroup_types == ("unreduced", "replicated")
    whole = parse("{devices=[1,4,1]<=[4] last_tile_dims={unreduced, replicated}}")
    assert along_dims(whole, (0,), (1,), 2).is_unreduced()


def test_metadata_stays_and_groups_go():
    s = parse('{devices=[2,4]<=[8] shard_as 1 metadata={op_name="a"}}')
    for moved in (transpose_sharding(s, (1, 0)), replicate_on_dims(s, (0,)), along_dims(s, (0,), (0,), 1)):
        assert moved.metadata == s.metadata
        assert moved.shard_group is None
    assert split_dimension(s, 0, 1).metadata == merge_dimension(s, 0).metadata == ()
