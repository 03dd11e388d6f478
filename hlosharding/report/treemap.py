"""Parts of a whole as boxes, each as large as its figure.

Floor: report.  Squarified, so that boxes are no strips (Bruls, Huizing and van Wijk 2000).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlosharding.report.figures import as_bytes
from hlosharding.report.flame import function_colour
from hlosharding.report.places import function_place, spelled
from hlosharding.report.svg import box, place, svg_image

_WIDTH, _HEIGHT = 960.0, 220.0
_MOST = 60
"""Boxes; what is smaller is not drawn."""
Box = tuple[float, float, float, float]
"""Left, top, width, height."""


def treemap_svg(parts: Sequence[tuple[str, float]]) -> str:
    """Bytes by function; each box leads to its function's row.

    >>> treemap_svg([("mlp", 3e6), ("loss", 1e6)]).count("<rect")
    2
    """
    largest = sorted((part for part in parts if part[1] > 0), key=lambda part: -part[1])[:_MOST]
    whole = sum(size for _, size in parts)
    places = squarify([size for _, size in largest], (0.0, 0.0, _WIDTH, _HEIGHT))
    boxes = (_box(name, size, whole, at) for (name, size), at in zip(largest, places, strict=True))
    return svg_image(int(_WIDTH), int(_HEIGHT), boxes)


def _box(name: str, size: float, whole: float, at: Box) -> str:
    shown = spelled(name)
    said = f"{shown}: {as_bytes(size)}, {size / whole:.1%}"
    text = f"{shown} {as_bytes(size)}"
    return place(function_place(name), [box(*at, function_colour(shown), said, text)])


def squarify(sizes: Sequence[float], room: Box) -> Iterator[Box]:
    """A box for each size (the largest first), which together fill the room.

    >>> list(squarify([1.0, 1.0], (0.0, 0.0, 4.0, 2.0)))
    [(0.0, 0.0, 2.0, 2.0), (2.0, 0.0, 2.0, 2.0)]
    """
    left, rest = list(sizes), sum(sizes)
    while left:
        x, y, width, height = room
        scale, short = width * height / rest if rest else 0.0, min(width, height)
        count = next(
            (n for n in range(1, len(left)) if _worst(left[: n + 1], scale, short) > _worst(left[:n], scale, short)),
            len(left),
        )
        row, left = left[:count], left[count:]
        thick = sum(row) * scale / short if short else 0.0
        along = 0.0
        for size in row:
            long = size * scale / thick if thick else 0.0
            yield (x, y + along, thick, long) if width >= height else (x + along, y, long, thick)
            along += long
        room = (x + thick, y, width - thick, height) if width >= height else (x, y + thick, width, height - thick)
        rest -= sum(row)


def _worst(row: Sequence[float], scale: float, short: float) -> float:
    """How far the box that is most of a strip is from a square."""
    area = sum(row) * scale
    return max(short**2 * max(row) * scale / area**2, area**2 / (short**2 * min(row) * scale)) if area else 1.0
