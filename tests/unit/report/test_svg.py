"""Letters on boxes are read: WCAG's contrast, which axe-core does not compute inside images."""

from __future__ import annotations

import colorsys
import re

import pytest

from hlosharding.report.flame import function_colour
from hlosharding.report.streams import COLOURS
from hlosharding.report.svg import INK, box

LEAST = 4.5
"""Of small letters, at level AA."""


def luminance(red: float, green: float, blue: float) -> float:
    """WCAG 2.2's relative luminance."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def of_hsl(colour: str) -> float:
    hue, saturation, lightness = map(float, re.findall(r"[\d.]+", colour))
    return luminance(*colorsys.hls_to_rgb(hue / 360, lightness / 100, saturation / 100))


def of_hex(colour: str) -> float:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return luminance(red, green, blue)


@pytest.mark.parametrize("colour", [*COLOURS.values(), *sorted({function_colour(f"f{n}") for n in range(60)})])
def test_letters_on_boxes_are_read(colour: str) -> None:
    lighter, darker = of_hsl(colour), of_hex(INK)
    assert (lighter + 0.05) / (darker + 0.05) >= LEAST


def test_as_much_of_a_text_as_there_is_room_for() -> None:
    assert "attention</text>" in box(0, 0, 200, 18, "red", "said", "attention")
    assert "atte…</text>" in box(0, 0, 45, 18, "red", "said", "attention")
    assert "<text" not in box(0, 0, 20, 18, "red", "said", "attention")
    assert "<b>" not in box(0, 0, 200, 18, "red", "<b>", "<b>")
