"""Where the time goes by who calls whom: a box for each function, as wide as the time it takes, callers above.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from zlib import crc32

from hlosharding.report.figures import as_seconds
from hlosharding.report.places import function_place, spelled
from hlosharding.report.svg import box, place, svg_image

_WIDTH, _ROW = 960, 18  # pixels
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
    yield place(
        function_place(calls.name),
        [box(x, depth * _ROW, calls.seconds * scale, _ROW, function_colour(name), said, name)],
    )
    for one in sorted(calls.inside.values(), key=lambda one: -one.seconds):
        yield from _boxes(one, x, depth + 1, whole_s, scale)
        x += one.seconds * scale


def function_colour(name: str) -> str:
    """The same in every picture; light, so that dark letters are read on it."""
    return f"hsl({crc32(name.encode()) % 360},55%,72%)"
