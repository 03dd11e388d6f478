"""Boxes as large as figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlosharding.report.flame import squarify, treemap_svg


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=60))
def test_boxes_fill_the_room_each_by_its_size(sizes: list[float]) -> None:
    sizes.sort(reverse=True)
    boxes = list(squarify(sizes, (0.0, 0.0, 960.0, 220.0)))
    whole = sum(sizes)
    for size, (x, y, width, height) in zip(sizes, boxes, strict=True):
        assert width * height == pytest.approx(960 * 220 * size / whole, rel=1e-6, abs=1e-6)
        assert -1e-6 <= x <= x + width <= 960 + 1e-6
        assert -1e-6 <= y <= y + height <= 220 + 1e-6


def test_the_example_of_the_paper() -> None:
    # Bruls, Huizing and van Wijk, figure 4, in 6 by 4: the two of 6 share a strip that is 3 wide.
    boxes = list(squarify([6, 6, 4, 3, 2, 2, 1], (0.0, 0.0, 6.0, 4.0)))
    assert boxes[:2] == [(0, 0, 3, 2), (0, 2, 3, 2)]
    assert boxes[2:4] == [pytest.approx((3, 0, 12 / 7, 7 / 3)), pytest.approx((3 + 12 / 7, 0, 9 / 7, 7 / 3))]


def test_nothing_makes_an_empty_picture_and_names_are_text() -> None:
    assert treemap_svg([("mlp", 0.0)]).count("<rect") == 0
    assert "<b>" not in treemap_svg([("<b>", 1.0)])
