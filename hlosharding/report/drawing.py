"""A picture of a sharding: which devices hold which tile, at any rank, as text, as SVG and as an icon.

Floor: report.  The last two dims are drawn as a grid; each combination of the leading dims' tiles is a page of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from hlosharding.errors import ShardingError, is_count
from hlosharding.report.svg import label, svg_image
from hlosharding.sharding import HloSharding

WHOLE = "hsl(0,0%,82%)"
"""Of what is not split."""


def tile_colour(place: Sequence[int], device: int, num_devices: int) -> str:
    """Of the tile at `place` (its number along each dim) that `device` holds, first of all its devices.

    Hues go round with the devices, so that an order of devices is seen.  Among many devices neighbours have nearly one
    hue: that is why tiles are light and dark like the squares of a chessboard.

    >>> tile_colour((0, 0), 0, 4), tile_colour((0, 1), 1, 4), tile_colour((1, 0), 2, 4)
    ('hsl(0,62%,87%)', 'hsl(90,62%,70%)', 'hsl(180,62%,70%)')
    """
    hue = round(360 * device / max(1, num_devices), 1)
    return f"hsl({hue:g},62%,{70 if sum(place) % 2 else 87}%)"


_CELL, _GAP, _LABEL = 34, 18, 22  # pixels: tile height, between pages, headings
_BETWEEN = 2  # characters between the columns of a text drawing


@dataclass(frozen=True, slots=True)
class TileGrid:
    """The tiles at one position of the leading dims."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    """Devices that hold the tile, by row and column."""
    colours: tuple[tuple[str, ...], ...] = ((WHOLE,),)


def draw(sharding: HloSharding | str, dims: Sequence[int], *, width: int | None = None) -> str:
    """Text: one grid per page, with the range of elements beside each row and above each column.

    `dims` are those of the whole array; `width` is the terminal's: columns that do not fit stand in a grid below.
    Raises ShardingError for a tuple or a wrong rank.

    >>> print(draw("{devices=[2,2]<=[4]}", (4, 6)))
         0:3  3:6
    0:2    0    1
    2:4    2    3
    """
    return "\n\n".join(_page_text(page, width) for page in pages(sharding, dims))


def _page_text(page: TileGrid, room: int | None) -> str:
    width = max(len(text) for row in (page.columns, *page.cells) for text in row)
    head = max(len(row) for row in page.rows)
    count = len(page.columns) if room is None else max(1, (room - head) // (width + _BETWEEN))
    grids = [_grid_lines(page, slice(at, at + count), head, width) for at in range(0, len(page.columns), count)]
    return "\n".join([*([page.title] if page.title else []), "\n\n".join("\n".join(grid) for grid in grids)])


def _grid_lines(page: TileGrid, columns: slice, head: int, width: int) -> list[str]:
    lines = [_line("", page.columns[columns], head, width)]
    lines += [_line(row, cells[columns], head, width) for row, cells in zip(page.rows, page.cells, strict=True)]
    return [line for line in lines if line]


def _line(name: str, cells: Sequence[str], head: int, width: int) -> str:
    return (name.rjust(head) + "".join(" " * _BETWEEN + cell.rjust(width) for cell in cells)).rstrip()


def pages(sharding: HloSharding | str, dims: Sequence[int]) -> Iterator[TileGrid]:
    """The pages of a drawing, leading dims in order.  Raises ShardingError for a tuple or a wrong rank."""
    if isinstance(sharding, str):
        sharding = HloSharding.parse(sharding)
    if sharding.is_tuple():
        raise ShardingError(f"{sharding} is a tuple", remedy="draw its leaves one by one")
    if not all(is_count(size, 0) for size in dims):
        raise ShardingError(f"{list(dims)} is no shape of an array", remedy="give the global size of every dim")
    if sharding.kind != "tiled":
        yield TileGrid("", ("",), ("",), ((_whole(sharding),),))
        return
    if len(sharding.data_dims) != len(dims):
        raise ShardingError(f"{sharding} has {len(sharding.data_dims)} dims, the shape {len(dims)}")
    lacks = max(0, 2 - len(dims))  # a row of its own for what has no dims for rows, or for columns
    sizes, ways = (*[None] * lacks, *dims), (*[1] * lacks, *sharding.data_dims)
    holders, count = sharding.tiles.array.reshape((*ways, -1)), sharding.num_devices or 1
    rows, columns = (tuple(_range(sizes[d], ways[d], n) for n in range(ways[d])) for d in (-2, -1))
    for place in product(*map(range, ways[:-2])):
        where = ", ".join(f"dim {d}: {_range(sizes[d], ways[d], p)}" for d, p in enumerate(place))
        indices = [[(*place, r, c) for c in range(ways[-1])] for r in range(ways[-2])]
        cells = tuple(tuple(",".join(map(str, holders[index])) for index in row) for row in indices)
        colours = tuple(tuple(tile_colour(index, int(holders[index][0]), count) for index in row) for row in indices)
        yield TileGrid(where, rows, columns, cells, colours)


def _whole(sharding: HloSharding) -> str:
    words = {"replicated": "whole on every device", "manual": "per device, as the program says"}
    return f"whole on device {sharding.device}" if sharding.is_maximal() else words.get(sharding.kind, sharding.kind)


def _range(size: int | None, ways: int, place: int) -> str:
    if size is None:
        return ""
    tile = -(-size // ways)
    start, end = min(place * tile, size), min((place + 1) * tile, size)
    return f"{start}:{end}" if start < end else "padding"


def draw_svg(sharding: HloSharding | str, dims: Sequence[int]) -> str:
    """The same as one SVG image; hues tell devices apart, and neighbouring tiles are never of nearly one colour.

    >>> draw_svg(HloSharding.parse("{devices=[2]<=[2]}"), (4,)).startswith("<svg ")
    True
    """
    parts: list[str] = []
    top = width = 0
    for page in pages(sharding, dims):
        cell = 14 + 8 * max(len(text) for row in (page.columns, *page.cells) for text in row)
        left = 12 + 8 * max(len(row) for row in page.rows)
        top += _GAP
        parts.append(_heading(4, top, page.title, "start"))
        for c, column in enumerate(page.columns):
            parts.append(_heading(left + c * cell + cell // 2, top + _LABEL - 6, column))
        for r, (row, cells, colours) in enumerate(zip(page.rows, page.cells, page.colours, strict=True)):
            y = top + _LABEL + r * _CELL
            parts.append(_heading(left - 6, y + _CELL // 2 + 4, row, "end"))
            tiles = enumerate(zip(cells, colours, strict=True))
            parts += [_tile(left + c * cell, y, cell, devices, colour) for c, (devices, colour) in tiles]
        top += _LABEL + len(page.rows) * _CELL
        width = max(width, left + len(page.columns) * cell + 8, 8 + 8 * len(page.title))
    return svg_image(width, top + 8, parts)


def _tile(x: int, y: int, width: int, devices: str, colour: str) -> str:
    box = f'<rect x="{x}" y="{y}" width="{width}" height="{_CELL}" fill="{colour}" stroke="#444"/>'
    return f'{box}<g fill="#111">{_heading(x + width // 2, y + _CELL // 2 + 4, devices)}</g>'


def _heading(x: int, y: int, text: str, anchor: str = "middle") -> str:
    return label(x, y, text, anchor) if text else ""


# ---- as small as a letter

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
