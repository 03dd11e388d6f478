"""Boxes as wide as the time that functions take, callers above what they call."""

from __future__ import annotations

import re

from hlosharding.report.flame import Calls, flame_svg


def test_a_box_is_as_wide_as_its_time_and_lies_below_its_caller() -> None:
    root = Calls("step")
    root.add(("loss", "mlp"), 1.0)
    root.add(("loss", "attention"), 2.0)
    root.add(("adam",), 1.0)
    found = {
        name: (float(x), float(y), float(width))
        for x, y, width, name in re.findall(
            r'<rect x="(\S+)" y="(\S+)" width="(\S+)"[^>]*><title>(\w+):', flame_svg(root)
        )
    }
    # 960 pixels, of which one is left between boxes.
    assert found["step"] == (0, 0, 959)
    assert found["loss"] == (0, 18, 719)
    assert found["attention"] == (0, 36, 479)
    assert found["mlp"] == (480, 36, 239)
    assert found["adam"] == (720, 18, 239)


def test_what_is_too_narrow_is_not_drawn_and_names_are_text() -> None:
    root = Calls("step")
    root.add(("<b>",), 1.0)
    root.add(("tiny",), 1e-4)
    drawn = flame_svg(root)
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn
    assert "tiny" not in drawn
    assert flame_svg(Calls("nothing")).startswith("<svg")


def test_functions_that_call_each_other_without_end_are_drawn_so_deep_as_can_be_seen() -> None:
    root = Calls("step")
    root.add(tuple(f"f{n}" for n in range(100_000)), 1.0)
    assert root.depth == flame_svg(root).count("<rect") == 30
