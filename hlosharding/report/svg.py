"""What all our SVG images have in common.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def svg_image(width: int, height: int, parts: Iterable[str]) -> str:
    """One self-contained image; text in the colour of the page around it, so that it is seen on dark ones, too.

    >>> svg_image(8, 8, [label(0, 8, "a<b")]).endswith('<text x="0" y="8">a&lt;b</text></svg>')
    True
    """
    style = 'font-family="monospace" font-size="12" fill="currentColor"'
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>'


def label(x: float, y: float, text: str, anchor: str = "start") -> str:
    """A text, be it a stranger's."""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}"{side}>{escape(text)}</text>'
