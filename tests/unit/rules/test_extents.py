"""Extents joined and cut: by the arithmetic of reshapes."""

from __future__ import annotations

import pytest

from hlosharding.rules.composition import Extent, join, parts_of


def sizes(extents: list[Extent]) -> list[int]:
    return [part.size for part in parts_of(extents)]


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        ([24], [2, 3, 4], [2, 3, 4]),
        ([2, 12], [6, 4], [2, 3, 4]),
        ([4, 6], [6, 4], None),
        ([8, 3], [4, 6], [4, 2, 3]),
        ([1, 8, 1], [8], [8]),
        ([0, 4], [0, 4], [0, 4]),
        ([0], [4], None),
        ([8], [4], None),
        ([], [1], []),
    ],
)
def test_lists_that_line_up_are_cut_alike(first: list[int], second: list[int], parts: list[int] | None) -> None:
    left, right = list(map(Extent, first)), list(map(Extent, second))
    assert join(left, right) == (parts is not None)
    if parts is not None:
        assert sizes(left) == sizes(right) == parts
        assert parts_of(left) == parts_of(right)


def test_what_is_joined_stays_so_when_it_is_cut() -> None:
    rows, same, halves = Extent(8), Extent(8), [Extent(2), Extent(4)]
    assert join([rows], [same])
    assert join([rows], halves)
    assert parts_of([same]) == parts_of(halves)
    assert sizes([rows]) == [2, 4]


def test_an_extent_that_is_met_again_is_itself() -> None:
    rows = Extent(8)
    assert join([rows, Extent(3)], [rows, Extent(3)])
    assert sizes([rows]) == [8]
