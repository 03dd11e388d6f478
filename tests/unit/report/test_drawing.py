"""Drawings say which devices hold which elements, at any rank."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from hlosharding import HloSharding, draw, draw_svg
from hlosharding.errors import ShardingError


def test_three_dims_are_pages_of_grids() -> None:
    text = draw(HloSharding.parse("{devices=[2,1,2]<=[4]}"), (4, 3, 6))
    assert text.split("\n\n") == [
        "dim 0: 0:2\n     0:3  3:6\n0:3    0    1",
        "dim 0: 2:4\n     0:3  3:6\n0:3    2    3",
    ]


def test_copies_stand_in_one_cell() -> None:
    assert "0,2" in draw(HloSharding.parse("{devices=[2,2]0,2,1,3 last_tile_dim_replicate}"), (4,))


def test_tiles_without_elements_are_padding() -> None:
    assert draw(HloSharding.parse("{devices=[3]<=[3]}"), (4,)).split() == ["0:2", "2:4", "padding", "0", "1", "2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{replicated}", "whole on every device"), ("{maximal device=3}", "whole on device 3")],
)
def test_whole_values_are_said_in_words(text: str, expected: str) -> None:
    assert expected in draw(HloSharding.parse(text), (4, 4))


def test_svg_shows_long_headings_whole_and_on_dark_pages() -> None:
    root = ET.fromstring(draw_svg("{devices=[2,2,1,1]<=[4]}", (4096, 4096, 8, 8)))
    heading = next(text for text in root.findall(".//{*}text") if (text.text or "").startswith("dim 0: 2048:4096"))
    # Monospaced at 12 pixels: 7.2 wide.
    assert 4 + 7.3 * len(heading.text or "") < int(root.attrib["width"])
    assert root.attrib["fill"] == "currentColor"


def test_svg_is_well_formed_and_has_a_box_per_tile() -> None:
    root = ET.fromstring(draw_svg(HloSharding.parse("{devices=[2,3,2]<=[12]}"), (4, 6, 8)))
    assert sum(child.tag.endswith("rect") for child in root) == 12


def test_wrong_rank_is_an_error() -> None:
    with pytest.raises(ShardingError, match="1 dims"):
        draw(HloSharding.parse("{devices=[2]<=[2]}"), (4, 4))
