"""More specific, merged, within.  Expected results: hand reasoning and XLA's own tests."""

from __future__ import annotations

import pytest

from hlosharding.errors import ShardingError
from hlosharding.sharding import (
    HloSharding,
    find_common_sharding,
    is_more_specific,
    is_strictly_better,
    is_subtiling_or_equal,
    merge_if_compatible,
    merge_sharding,
)

parse = HloSharding.parse
R, M, D = parse("{replicated}"), parse("{manual}"), parse("{maximal device=0}")
T2, T4 = parse("{devices=[2]<=[2]}"), parse("{devices=[4]<=[4]}")


@pytest.mark.parametrize(
    ("left", "right", "more"),
    [
        (M, R, True), (M, D, True), (R, M, False), (M, T2, False), (T2, M, False), (M, M, False),
        (T2, R, True), (T2, D, True), (D, R, True), (R, D, False), (R, R, False), (D, D, False),
        (T4, T2, True), (T2, T4, False), (T2, T2, False), (R, T2, False), (D, T2, False),
    ],
)  # fmt: skip
def test_more_specific(left, right, more):
    assert is_more_specific(left, right) is more


def test_more_specific_tuples():
    tuples = HloSharding.tuple
    assert is_more_specific(tuples([T2, R]), tuples([R, R]))
    assert not is_more_specific(tuples([T2, R]), tuples([R, T2]))
    assert not is_more_specific(tuples([T2, R]), tuples([T2, R]))
    for other in (tuples([R]), R):
        with pytest.raises(ShardingError, match="cannot compare"):
            is_more_specific(tuples([R, R]), other)


def test_strictly_better():
    tuples = HloSharding.tuple
    assert is_strictly_better(M, R)
    assert is_strictly_better(M, D)
    assert not is_strictly_better(M, T2)
    assert not is_strictly_better(T2, R)
    assert is_strictly_better(tuples([M, T2]), tuples([R, T4]))
    assert not is_strictly_better(tuples([M, R]), tuples([R, M]))


@pytest.mark.parametrize(
    ("source", "target", "merged"),
    [
        ("[1,4,2,16]<=[16,8]T(1,0) last_tile_dim_replicate", "[4,1,1,32]<=[128] last_tile_dim_replicate",
         "[4,4,2,4]<=[4,4,8]T(0,2,1) last_tile_dim_replicate"),
        ("[1,4,2,16]<=[16,8]T(1,0) last_tile_dim_replicate", "[4,1,1,32]<=[16,8]T(1,0) last_tile_dim_replicate", None),
        ("[2,1,2]<=[4] last_tile_dim_replicate", "[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate", "[2,2]<=[4]"),
        ("[2,1,2]<=[4] last_tile_dim_replicate", "[1,2,2]<=[4] last_tile_dim_replicate", None),
        ("[2,1,2]<=[4] last_tile_dim_replicate", "[2,2]<=[4]", None),
        ("[2,2]<=[4]", "[2,1,2]<=[4] last_tile_dim_replicate", "[2,2]<=[4]"),
        ("[2,2]<=[4]", "[4,1]<=[4]", None),
        ("[3,1,2]<=[6] last_tile_dim_replicate", "[2,1,3]<=[6] last_tile_dim_replicate", None),
        # No iota on either side: listed.
        ("[2,1,2]0,1,3,2 last_tile_dim_replicate", "[1,2,2]0,3,1,2 last_tile_dim_replicate", "[2,2]0,1,3,2"),
        # The manual subgroup must be the same.
        ("[1,2,2,4]<=[16] last_tile_dims={manual, replicated}",
         "[2,1,2,4]<=[2,4,2]T(2,0,1) last_tile_dims={manual, replicated}", None),
        ("[1,2,2,4]<=[4,4]T(1,0) last_tile_dims={manual, replicated}", "[2,2,4]<=[4,4]T(1,0) last_tile_dim_replicate",
         None),
    ],
)  # fmt: skip
def test_merged_if_compatible(source, target, merged):
    result = merge_if_compatible(parse(f"{{devices={source}}}"), parse(f"{{devices={target}}}"))
    assert (result and str(result)) == (merged and f"{{devices={merged}}}")


def test_merge_with_subgroups():
    tiles = parse("{devices=[16,8,2]<=[256] last_tile_dim_replicate}")
    assert merge_if_compatible(tiles, tiles) is None
    assert merge_if_compatible(tiles, tiles, tiles.num_tiles) == tiles
    manual = parse("{devices=[16,1,8,2]<=[256] last_tile_dims={manual, replicated}}")
    split = parse("{devices=[1,2,8,16]<=[16,8,2]T(2,1,0) last_tile_dims={manual, replicated}}")
    merged = merge_if_compatible(manual, split)
    assert str(merged) == "{devices=[16,2,8]<=[16,8,2]T(0,2,1) last_tile_dims={manual}}"


def test_merge_with_whole_kinds():
    assert merge_if_compatible(R, T2) is None
    assert merge_if_compatible(T2, R) is T2
    assert merge_if_compatible(T2, D) is T2
    assert merge_if_compatible(T2, parse("{unreduced}")) is None
    for source, target in ((M, T2), (T2, M), (HloSharding.tuple([R]), T2)):
        with pytest.raises(ShardingError, match="only leaves"):
            merge_if_compatible(source, target)


def test_merge_collects_metadata():
    source = parse('{devices=[2,1,2]<=[4] last_tile_dim_replicate metadata={{op_name="a"}, {op_name="b"}}}')
    target = parse('{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate metadata={{op_name="c"}, {op_name="a"}}}')
    merged = merge_if_compatible(source, target)
    assert merged is not None
    assert [m.op_name for m in merged.metadata] == ["c", "a", "b"]


def test_merge_sharding():
    half = parse("{devices=[2,1,2]<=[4] last_tile_dim_replicate}")
    other = parse("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}")
    assert merge_sharding(half, other, True) == (True, HloSharding.iota_tile((2, 2)))
    assert merge_sharding(half, other, False) == (False, other)
    assert merge_sharding(R, T2, True) == (True, T2)
    assert merge_sharding(T2, R, True) == (False, R)
    old, new = HloSharding.tuple([half, R]), HloSharding.tuple([other, R])
    assert merge_sharding(old, new, True) == (True, HloSharding.tuple([HloSharding.iota_tile((2, 2)), R]))
    assert merge_sharding(old, new, False) == (False, new)


def test_common_sharding():
    half = parse("{devices=[2,1,2]<=[4] last_tile_dim_replicate}")
    other = parse("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}")
    clash = parse("{devices=[1,2,2]<=[4] last_tile_dim_replicate}")
    assert find_common_sharding([half, other]) == HloSharding.iota_tile((2, 2))
    assert find_common_sharding([half, half]) is half
    assert find_common_sharding([half, clash]) is half
    assert find_common_sharding([half, clash], R) is R


@pytest.mark.parametrize(
    ("dims", "fine", "coarse", "within"),
    [
        ((4, 5, 6), "{devices=[4]<=[4]}", "{replicated}", True),
        ((4,), "{replicated}", "{devices=[4]<=[4]}", False),
        ((4,), "{manual}", "{replicated}", False),
        ((4,), "{replicated}", "{manual}", False),
        ((4, 4), "{devices=[4,1]<=[4]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}", True),
        ((4, 4), "{devices=[4,1]<=[4]}", "{devices=[2,2]<=[4]}", False),
        ((4, 4), "{devices=[1,4]<=[4]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}", False),
        ((4, 4), "{devices=[4,1]<=[2,2]T(1,0)}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}", False),
        ((4, 4), "{devices=[2,2]<=[4]}", "{devices=[2,2]<=[4]}", True),
        ((4,), "{devices=[2,2]<=[4]}", "{devices=[2,2]<=[4]}", False),
        # 5 over 4 tiles of 2: 2, 2, 1, 0; over 2 tiles of 3: device 1 crosses.
        ((5,), "{devices=[4]<=[4]}", "{devices=[2,2]<=[4] last_tile_dim_replicate}", False),
        ((8,), "{devices=[4]<=[4]}", "{devices=[2,2]<=[4] last_tile_dim_replicate}", True),
        # Padding at the end does not count.
        ((3,), "{devices=[4]<=[4]}", "{devices=[2,2]<=[4] last_tile_dim_replicate}", True),
        ((0,), "{devices=[2]<=[2]}", "{devices=[2]<=[2]}", True),
    ],
)
def test_subtiling(dims, fine, coarse, within):
    assert is_subtiling_or_equal(dims, parse(fine), parse(coarse)) is within
