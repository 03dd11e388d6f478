"""Where the time goes by who calls whom, and parts of a whole: boxes as wide, or as large, as their figures.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from hlosharding.report.figures import as_bytes, as_seconds
from hlosharding.report.places import function_place, spelled
from hlosharding.report.svg import box, place, svg_image

_WIDTH, _ROW = 960, 18  # pixels
# Frames are whatever a program says: of 100,000 functions that call each other boxes would be drawn, and recursion in
# `depth` and `_boxes` would end Python's stack.
_DEEPEST = 30
"""Functions that call each other; what is called still deeper counts there."""
_NARROWEST = 2
"""Pixels: what is narrower is not drawn."""


@dataclass(slots=True)
class Calls:
    """A function where it is called, and the functions that it calls."""

    name: str
    seconds: float = 0.0
    """With what it calls."""
    inside: dict[str, Calls] = field(default_factory=dict[str, "Calls"])

    def add(self, path: tuple[str, ...], seconds: float) -> None:
        """Time that is spent where functions called each other so, the outermost first."""
        self.seconds += seconds
        calls = self
        for name in path[: _DEEPEST - 1]:
            calls = calls.inside.setdefault(name, Calls(name))
            calls.seconds += seconds

    @property
    def depth(self) -> int:
        """How many stand above each other."""
        return 1 + max((one.depth for one in self.inside.values()), default=0)


def flame_svg(root: Calls) -> str:
    """The boxes; each leads to its function's row.

    >>> root = Calls("step")
    >>> root.add(("loss", "attention"), 3e-3)
    >>> flame_svg(root).count("<rect")
    3
    """
    scale = _WIDTH / root.seconds if root.seconds else 0.0
    return svg_image(_WIDTH, root.depth * _ROW, _boxes(root, 0.0, 0, root.seconds, scale))


def _boxes(calls: Calls, x: float, depth: int, whole_s: float, scale: float) -> Iterator[str]:
    if calls.seconds * scale < _NARROWEST:
        return
    name = spelled(calls.name)
    said = f"{name}: {as_seconds(calls.seconds)}, {calls.seconds / whole_s:.1%}"
    drawn = box(x, depth * _ROW, calls.seconds * scale, _ROW, function_colour(name), said, name)
    yield place(function_place(calls.name), [drawn])
    for one in sorted(calls.inside.values(), key=lambda one: -one.seconds):
        yield from _boxes(one, x, depth + 1, whole_s, scale)
        x += one.seconds * scale


def function_colour(name: str) -> str:
    """The same in every picture; light, so that dark letters are read on it."""
    # Python's own hash of a text is another one in each process.
    return f"hsl({crc32(name.encode()) % 360},55%,72%)"


# ---- parts of a whole, each as large as its figure

_HEIGHT, _MOST = 220, 60
"""Pixels; boxes: what is smaller is not drawn."""
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
    return svg_image(_WIDTH, _HEIGHT, boxes)


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
