"""Neighbouring tiles never share nearly one colour: their distance in CIELAB, worked out here, is one that is seen."""

from __future__ import annotations

import colorsys
import re
from itertools import pairwise

import pytest

from hlosharding.report.drawing import pages
from hlosharding.sharding import HloSharding

SEEN = 10.0
"""In CIELAB some 2 are just seen side by side; this is five times that."""


def lab(colour: str) -> tuple[float, float, float]:
    """CIE 1976 of an sRGB colour under D65, by the standard's formulas."""
    found = re.fullmatch(r"hsl\(([\d.]+),(\d+)%,(\d+)%\)", colour)
    assert found is not None
    hue, saturation, lightness = map(float, found.groups())
    rgb = colorsys.hls_to_rgb(hue / 360, lightness / 100, saturation / 100)
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def apart(one: str, other: str) -> float:
    return sum((a - b) ** 2 for a, b in zip(lab(one), lab(other), strict=True)) ** 0.5


def test_the_distance_is_the_standards() -> None:
    assert apart("hsl(0,0%,100%)", "hsl(0,0%,0%)") == pytest.approx(100, abs=0.1)
    assert lab("hsl(0,100%,50%)") == pytest.approx((53.2, 80.1, 67.2), abs=0.3)  # red, from tables


def grids() -> list[str]:
    found = [f"{{devices=[{n}]<=[{n}]}}" for n in (*range(2, 34), 48, 63, 64, 100, 128, 256, 512)]
    for rows in (2, 3, 4, 5, 7, 8, 13, 16, 21, 32):
        for columns in (2, 3, 4, 6, 8, 9, 16, 31):
            count = rows * columns
            found.append(f"{{devices=[{rows},{columns}]<=[{count}]}}")
            found.append(f"{{devices=[{rows},{columns}]<=[{columns},{rows}]T(1,0)}}")
            found.append(f"{{devices=[{rows},{columns},2]<=[2,{count}]T(1,0) last_tile_dim_replicate}}")
    return [*found, "{devices=[8]7,6,5,4,3,2,1,0}", "{devices=[2,4]0,3,1,2,7,4,6,5}"]


@pytest.mark.parametrize("text", grids())
def test_neighbours_are_told_apart(text: str) -> None:
    sharding = HloSharding.parse(text)
    [page] = pages(sharding, [1024] * len(sharding.data_dims))
    rows, columns = page.colours, zip(*page.colours, strict=True)
    neighbours = [pair for line in (*rows, *columns) for pair in pairwise(line)]
    assert neighbours
    assert min(apart(one, other) for one, other in neighbours) >= SEEN
