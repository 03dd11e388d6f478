"""A partitioned program at one glance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hlosharding import report
from tests.unit.report.programs import partitioned, text_of


def test_the_summary_holds_cost_and_collectives() -> None:
    text = text_of(report.show_partitioned(partitioned()))
    for words in ("global on 8 devices", "peak memory", "Collectives of one run"):
        assert words in text


def test_warnings_are_lines_of_plain_text() -> None:
    warned: Any = SimpleNamespace(warnings=("custom-call [/foo] at m.py:3 is replicated: 12 bytes",))
    assert text_of(report.show_warnings(warned)) == "warning: custom-call [/foo] at m.py:3 is replicated: 12 bytes\n"
    assert text_of(report.show_warnings(SimpleNamespace(warnings=()))).strip() == ""  # pyright: ignore[reportArgumentType]


def test_tables_take_names_that_look_like_markup() -> None:
    table = report.new_table("[/title]", "[/head]")
    report.add_row(table, "params[/w]")
    text = text_of(table)
    assert all(word in text for word in ("[/title]", "[/head]", "params[/w]"))
