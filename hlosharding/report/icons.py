"""A sharding as an icon: its split dims as a small grid, in the colours of the large drawings.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from hlosharding.report.colours import WHOLE, tile_colour
from hlosharding.sharding import HloSharding

SIZE = 16
_MOST = 8
"""Tiles along an edge: more are drawn as that many."""


def sharding_icon(sharding: HloSharding) -> str:
    """The inside of an SVG of 16 x 16; "" for tuples.

    Rows are the first split dim, columns the last one; of one split dim, columns where it is the last of the array.

    >>> sharding_icon(HloSharding.parse("{devices=[2,1]<=[2]}")).count("<rect")
    3
    """
    if sharding.is_tuple():
        return ""
    tiles = list(_tiles(sharding)) if sharding.kind == "tiled" else [_box(0, 0, SIZE, SIZE, WHOLE)]
    frame = f'<rect x="0.5" y="0.5" width="{SIZE - 1}" height="{SIZE - 1}" fill="none" stroke="currentColor"/>'
    return "".join(tiles) + frame


def _tiles(sharding: HloSharding) -> Iterator[str]:
    ways = [int(way) for way in sharding.data_dims]
    rows, columns = _grid(ways)
    holders = sharding.tiles.array.reshape(rows, columns, -1)[:, :, 0]
    shown_rows, shown_columns = min(rows, _MOST), min(columns, _MOST)
    wide, high = SIZE / shown_columns, SIZE / shown_rows
    for r in range(shown_rows):
        for c in range(shown_columns):
            device = int(holders[r * rows // shown_rows, c * columns // shown_columns])
            yield _box(c * wide, r * high, wide, high, tile_colour((r, c), device, sharding.num_devices or 1))


def _grid(ways: list[int]) -> tuple[int, int]:
    """How many rows and columns."""
    split = [dim for dim, way in enumerate(ways) if way > 1]
    if len(split) < 2:
        return (1, prod(ways)) if not split or split[0] == len(ways) - 1 else (prod(ways), 1)
    return prod(ways) // ways[split[-1]], ways[split[-1]]


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{colour}"/>'
