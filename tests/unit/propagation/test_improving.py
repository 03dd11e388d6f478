"""Improvement is XLA's ReturnImprovedSharding: better shardings win, worse ones are refused."""

from __future__ import annotations

import pytest

from hlosharding.ir import Shape
from hlosharding.propagation.improving import Receiver, best_operand, improve
from hlosharding.sharding import HloSharding

MATRIX = Shape.parse("f32[8,8]")
S = HloSharding.parse

NONE = None
REPLICATED = S("{replicated}")
ROWS = S("{devices=[2,1,2]<=[4] last_tile_dim_replicate}")
COLUMNS = S("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}")
BOTH = S("{devices=[2,2]<=[4]}")
FOUR_ROWS = S("{devices=[4,1]<=[4]}")
OTHER_FOUR_ROWS = S("{devices=[4,1]0,2,1,3}")
MANUAL = S("{manual}")
ONE = S("{maximal device=1}")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, ROWS, ROWS),  # anything is better than nothing
        (None, REPLICATED, REPLICATED),
        (None, ONE, None),  # but a single device does not spread
        (REPLICATED, ROWS, ROWS),
        (ROWS, REPLICATED, None),
        (ROWS, COLUMNS, BOTH),  # partial tilings merge
        (ROWS, FOUR_ROWS, FOUR_ROWS),  # a sub-tiling
        (ROWS, OTHER_FOUR_ROWS, None),  # more tiles, but not within the old ones
        (FOUR_ROWS, ROWS, None),
        (REPLICATED, MANUAL, MANUAL),  # manual beats tile-maximal
        (ONE, MANUAL, MANUAL),
        (ROWS, MANUAL, None),  # and nothing else
    ],
)
def test_arrays(old: HloSharding | None, new: HloSharding, expected: HloSharding | None) -> None:
    assert improve(old, new, MATRIX, combine=True) == expected


def test_without_combining_partial_tilings_do_not_merge() -> None:
    assert improve(ROWS, COLUMNS, MATRIX, combine=False) is None


def test_aggressive_takes_more_tiles_wherever_they_lie() -> None:
    assert improve(ROWS, OTHER_FOUR_ROWS, MATRIX, combine=True, aggressive=True) == OTHER_FOUR_ROWS


def test_tuples_improve_leaf_by_leaf() -> None:
    shape = Shape.tuple((MATRIX, MATRIX))
    old, new = HloSharding.tuple([ROWS, FOUR_ROWS]), HloSharding.tuple([COLUMNS, FOUR_ROWS])
    assert improve(old, new, shape, combine=True) == HloSharding.tuple([BOTH, FOUR_ROWS])
    assert improve(new, new, shape, combine=True) is None


def test_one_leaf_of_a_tuple_without_sharding() -> None:
    receiver = Receiver(Shape.tuple((MATRIX, MATRIX)), None, True, lambda: None)
    receiver.improve_leaf(ROWS, 1, 0)
    assert receiver.sharding == HloSharding.tuple([REPLICATED, ROWS])
    assert receiver.sources == [0]


def test_the_first_operand_that_no_later_one_beats() -> None:
    assert best_operand([None, ROWS, COLUMNS]) == 1
    assert best_operand([REPLICATED, ROWS, FOUR_ROWS]) == 2
    assert best_operand([None, None]) is None
