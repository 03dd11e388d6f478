"""Icons show the split dims: rows of the first, columns of the last; what is not split is one box."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from hlosharding.report.drawing import SIZE, sharding_icon
from hlosharding.sharding import HloSharding

CASES = {
    "{replicated}": (1, 1),
    "{maximal device=3}": (1, 1),
    "{devices=[4]<=[4]}": (1, 4),
    "{devices=[4,1]<=[4]}": (4, 1),
    "{devices=[1,2,1,4]<=[8]}": (2, 4),
    "{devices=[2,1,4]<=[8] last_tile_dim_replicate}": (2, 1),
    "{devices=[2,2,2]<=[8]}": (4, 2),
    "{devices=[512]<=[512]}": (1, 8),
}


@pytest.mark.parametrize("text", CASES)
def test_a_box_for_each_tile(text: str) -> None:
    root = ET.fromstring(f"<svg>{sharding_icon(HloSharding.parse(text))}</svg>")
    boxes = [box.attrib for box in root if box.attrib["fill"] != "none"]
    rows, columns = (len({box[side] for box in boxes}) for side in ("y", "x"))
    assert (rows, columns) == CASES[text]
    assert sum(float(box["width"]) * float(box["height"]) for box in boxes) == pytest.approx(SIZE * SIZE)


def test_tuples_have_none() -> None:
    assert sharding_icon(HloSharding.single_tuple(HloSharding.replicate(), 2)) == ""
