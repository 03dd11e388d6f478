"""What all our SVG images have in common.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, floor, log10


def svg_image(width: int, height: int, parts: Iterable[str]) -> str:
    """One self-contained image; text in the colour of the page around it, so that it is seen on dark ones, too.

    >>> svg_image(8, 8, [label(0, 8, "a<b")]).endswith('<text x="0" y="8">a&lt;b</text></svg>')
    True
    """
    style = 'font-family="monospace" font-size="12" fill="currentColor"'
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>'


def titled(svg: str, title: str) -> str:
    """The image with a name, for those who do not see it.

    >>> titled(svg_image(8, 8, []), "a<b").endswith("><title>a&lt;b</title></svg>")
    True
    """
    head, end, rest = svg.partition(">")
    return f"{head}{end}<title>{escape(title)}</title>{rest}"


def label(x: float, y: float, text: str, anchor: str = "start") -> str:
    """A text, be it a stranger's."""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}"{side}>{escape(text)}</text>'


def place(name: str, parts: Iterable[str]) -> str:
    """What leads to the row of that name, where a page has one."""
    return f'<g data-place="{escape(name)}">{"".join(parts)}</g>'


def box(x: float, y: float, width: float, height: float, colour: str, said: str, text: str = "") -> str:
    """A filled box, which says what it is, and as much of `text` in it as there is room for."""
    drawn = f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.3, width - 1):.1f}" height="{max(0.3, height - 1):.1f}"'
    room = int((width - 6) / CHARACTER)
    shown = text if len(text) <= room else text[: room - 1] + "…"
    inside = f'<g fill="{INK}">{label(x + 4, y + 13, shown)}</g>' if room > 2 and height >= 16 else ""
    return f'{drawn} fill="{colour}"><title>{escape(said)}</title></rect>{inside}'


def line_down(x: float, top: int, bottom: int, text: str, *, below: int, opacity: float = 0.15) -> str:
    """A line through a plot, and its value so many pixels below."""
    line = f'<path d="M{x:.1f} {top}V{bottom}" stroke="currentColor" stroke-opacity="{opacity}"/>'
    return line + label(x, bottom + below, text, "middle")


def line_right(y: float, left: int, right: int, text: str, *, before: int = 6, opacity: float = 0.15) -> str:
    """The same of one that lies, and its value to the left."""
    line = f'<path d="M{left} {y:.1f}H{right}" stroke="currentColor" stroke-opacity="{opacity}"/>'
    return line + label(left - before, y + 4, text, "end")


CHARACTER = 7.3
"""Pixels."""
INK = "#10151d"
"""On boxes, which are light on dark pages, too."""


class LogScale:
    """A logarithmic one, from pixel to pixel.

    >>> LogScale([1.0, 100.0], 0, 100).ticks
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    """

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        # Of values that are all one the scale has a length, too, and no point lies on its edge.
        self.low, self.high = log10(min(values)) - 0.05, log10(max(values)) + 0.05
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        return self.start + (log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """1, 2 and 5 of each power of ten between."""
        powers = range(floor(self.low), ceil(self.high) + 1)
        every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        return [value for value in every if self.low <= log10(value) <= self.high]
