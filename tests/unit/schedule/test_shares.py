"""Sums of terms along several axes, against sets of terms written out."""

from __future__ import annotations

import time
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hlosharding.errors import ScheduleError
from hlosharding.schedule.local_ops import check_order
from hlosharding.schedule.shares import Share, Shares, join_shares
from hlosharding.schedule.value_type import parse_type

SIZES = {"data": 3, "micro": 2, "other": 2}
Box = tuple[frozenset[int], ...]


def shares_of(box: Box) -> Shares:
    """The terms of a box; an axis along which it has all is summed already."""
    sides = zip(SIZES.items(), box, strict=True)
    return tuple(
        Share(axis, size, tuple(sorted(members)), is_sum=True) for (axis, size), members in sides if len(members) < size
    )


def terms_of(box: Box) -> set[tuple[int, ...]]:
    return set(product(*box))


boxes = st.tuples(*(st.frozensets(st.integers(0, size - 1), min_size=1) for size in SIZES.values()))


@st.composite
def cut_boxes(draw: st.DrawFn) -> list[Box]:
    """A box, cut along one axis after the other, the pieces in any order; perhaps one is left out or there twice."""
    pieces = [draw(boxes)]
    for _ in range(draw(st.integers(0, 4))):
        box = pieces.pop(draw(st.integers(0, len(pieces) - 1)))
        axis = draw(st.integers(0, len(box) - 1))
        members = sorted(box[axis])
        at = draw(st.integers(0, len(members) - 1))
        halves = [frozenset(half) for half in (members[:at], members[at:]) if half]
        pieces += [(*box[:axis], half, *box[axis + 1 :]) for half in halves]
    change = draw(st.sampled_from(["none", "leave out", "twice"]))
    if change == "leave out" and len(pieces) > 1:
        pieces.pop()
    elif change == "twice":
        pieces.append(pieces[0])
    return draw(st.permutations(pieces))


@given(cut_boxes())
def test_a_sum_is_lawful_where_its_terms_are_those_of_a_box_each_once(pieces: list[Box]) -> None:
    every = [term for box in pieces for term in terms_of(box)]
    union: Box = tuple(frozenset(n for box in pieces for n in box[axis]) for axis in range(len(SIZES)))
    is_lawful = len(every) == len(set(every)) and set(every) == terms_of(union)
    assume(any(map(shares_of, pieces)))  # any wholes may be added
    if is_lawful:
        assert join_shares([shares_of(box) for box in pieces], is_sum=True) == shares_of(union)
    else:
        with pytest.raises(ScheduleError):
            join_shares([shares_of(box) for box in pieces], is_sum=True)


def test_what_is_missing_is_counted() -> None:
    corner = [(Share("data", 2, (d,), is_sum=True), Share("micro", 2, (m,), is_sum=True)) for d, m in ((0, 0), (1, 1))]
    with pytest.raises(ScheduleError, match="2 of 4 terms of data and micro do not add up"):
        join_shares(corner, is_sum=True)


def test_many_terms_are_checked_soon() -> None:
    terms = [
        tuple(Share(a, 64, (n,), is_sum=True) for a, n in zip("dm", divmod(k, 64), strict=True)) for k in range(4096)
    ]
    began = time.process_time()
    assert join_shares(terms, is_sum=True) == ()
    with pytest.raises(ScheduleError, match="term 63 of d and 63 of m is in the sum twice"):
        join_shares([*terms, terms[-1]], is_sum=True)
    assert time.process_time() - began < 2


def test_what_is_there_twice_is_named() -> None:
    one = Share("data", 2, (0,), is_sum=True), Share("micro", 2, (1,), is_sum=True)
    with pytest.raises(ScheduleError, match="term 0 of data and 1 of micro is in the sum twice"):
        join_shares([one, (Share("micro", 2, (1,), is_sum=True),), one[:1]], is_sum=True)


def test_pieces_of_one_axis_come_in_its_order_whatever_others_there_are() -> None:
    check_order([parse_type(f"f32[4] on {{0}}, piece 1/2 of data, piece {n}/2 of micro") for n in range(2)])
    with pytest.raises(ScheduleError, match="another order"):
        check_order([parse_type(f"f32[4] on {{0}}, piece 1/2 of data, piece {n}/2 of micro") for n in (1, 0)])
