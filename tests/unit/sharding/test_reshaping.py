"""Tiles through reshapes.  The cases are those of XLA's own tests that still hold in jaxlib 0.10.2."""

from __future__ import annotations

import pytest

from hlosharding.errors import ShardingError
from hlosharding.sharding import HloSharding, propagate_through_reshape, reshape_sharding

parse = HloSharding.parse


@pytest.mark.parametrize(
    ("source", "target", "given", "result"),
    [
        # Dims of size 1 that are split.
        ((3, 1, 4), (3, 4), "[3,2,1]<=[6]", "[3,1,2]<=[6] last_tile_dim_replicate"),
        ((2, 1, 4), (2, 4, 1), "[2,1,4]<=[8]", "[2,4,1]<=[8]"),
        # Fused: only the most major part may be split, or all of it.
        ((4, 5, 7), (20, 7), "[2,1,1]<=[2]", "[2,1]<=[2]"),
        ((2, 4, 3), (8, 3), "[2,4,1]<=[8]", "[8,1]<=[8]"),
        # Split.
        ((16, 7), (4, 4, 7), "[4,1]<=[4]", "[4,1,1]<=[4]"),
        ((16, 7), (4, 4, 7), "[16,1]<=[16]", "[4,4,1]<=[16]"),
        ((36,), (6, 6), "[4]<=[4]", "[2,1,2]<=[4] last_tile_dim_replicate"),
        ((16, 4, 7), (4, 16, 7), "[16,4,1]<=[64]", "[4,16,1]<=[64]"),
        ((16, 7, 5, 3), (4, 15, 2, 14), "[2,1,1,1]<=[2]", "[2,1,1,1]<=[2]"),
        # Size-1 dims come and go.
        ((3, 1, 5, 7), (3, 5, 1, 7), "[1,1,5,1]<=[5]", "[1,5,1,1]<=[5]"),
        ((8, 16), (8, 16, 1), "[2,4]<=[8]", "[2,4,1]<=[8]"),
        # A transpose is hidden in it: the common part.
        ((6, 4), (2, 2, 3, 2), "[6,1]<=[6]", "[2,1,1,1,3]<=[6] last_tile_dim_replicate"),
        ((6, 4), (4, 6), "[6,1]<=[6]", "[2,1,3]<=[6] last_tile_dim_replicate"),
        ((4, 6, 5), (2, 2, 2, 5, 3), "[2,6,1]<=[12]", "[2,1,2,1,1,3]<=[12] last_tile_dim_replicate"),
        # Nothing in it.
        ((0, 4), (0, 2), "[2,1]<=[2]", "[2,1]<=[2]"),
        # Subgroups ride along.
        ((8, 4), (2, 4, 4), "[4,1,2]<=[8] last_tile_dims={manual}", "[2,2,1,2]<=[8] last_tile_dims={manual}"),
    ],
)
def test_carried_over(source, target, given, result):
    s = parse(f"{{devices={given}}}")
    assert str(reshape_sharding(source, target, s)) == f"{{devices={result}}}"
    assert propagate_through_reshape(source, target, s) == parse(f"{{devices={result}}}")


@pytest.mark.parametrize(
    ("source", "target", "given"),
    [
        ((3, 5, 7), (3, 35), "[1,2,1]<=[2]"),
        ((1, 1), (), "[2,1]<=[2]"),
        ((5, 2), (10,), "[2,1]<=[2]"),
    ],
)
def test_cannot_be_carried(source, target, given):
    s = parse(f"{{devices={given}}}")
    assert reshape_sharding(source, target, s) is None


def test_whole_kinds_pass():
    for text in ("{replicated}", "{maximal device=7}", "{manual}"):
        s = parse(text)
        assert reshape_sharding((2, 3, 5), (3, 5, 2), s) is s
        assert propagate_through_reshape((2, 3, 5), (3, 5, 2), s) is s


@pytest.mark.parametrize(
    ("source", "target", "given", "result"),
    [
        ((4, 4), (2, 2, 4), "{devices=[4,4]<=[16]}", "{devices=[2,2,4]<=[16]}"),
        # Dim 0 does not divide, dim 1 can be carried on its own.
        ((3, 4), (3, 2, 2), "{devices=[1,2]<=[2]}", "{devices=[1,2,1]<=[2]}"),
        ((4, 4, 8), (16, 2, 4), "{devices=[1,4,2]<=[8]}", "{devices=[1,2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"),
        # Nothing can be carried.
        ((5, 2), (10,), "{devices=[2,1]<=[2]}", "{replicated}"),
        # Around a manual subgroup.
        (
            (8, 4),
            (32,),
            "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
            "{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}",
        ),
    ],
)
def test_propagated_as_far_as_it_goes(source, target, given, result):
    assert str(propagate_through_reshape(source, target, parse(given))) == result


def test_a_reshape_keeps_the_number_of_elements():
    with pytest.raises(ShardingError, match="other number of elements"):
        reshape_sharding((4, 4), (8,), HloSharding.iota_tile((2, 2)))
