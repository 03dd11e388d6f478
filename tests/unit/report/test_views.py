"""What notebooks show: every value that users get draws itself, and the tables of a narrow terminal are whole."""

from __future__ import annotations

import functools
import html
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import hlosharding as hs
from hlosharding import report
from tests.support.shown_programs import partitioned, propagated

CLASH = (Path(__file__).resolve().parents[3] / "docs" / "clash.hlo").read_text()
ROWS, COLUMNS = "{devices=[4,1]<=[4]}", "{devices=[1,4]<=[4]}"


def words(shown: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", shown))


@functools.cache
def values() -> dict[str, tuple[Any, str]]:
    """Each value, and a word that must be seen of it."""
    clash = hs.propagate(hs.load(CLASH))
    rows, columns = hs.HloSharding.parse(ROWS), hs.HloSharding.parse(COLUMNS)
    return {
        "propagation": (propagated(mesh=True), "P('data', None)"),
        "explanation": (clash.explain("free"), "conflict: user, %rows"),
        "conflict": (clash.conflicts[0], "it lost"),
        "suggestion": (hs.suggest(hs.load(CLASH), "free", machine=hs.machines.h100(4))[0], "annotate %free"),
        "partitioned": (partitioned(), "Collectives of one run"),
        "cost": (partitioned().cost, "Cost by source line"),
        "simulation": (hs.simulate(partitioned(), hs.machines.h100(8)), "Critical path"),
        "plan": (hs.plan_reshard((8, 8), "float32", rows, columns), "lower bound"),
        "sharding": (rows, "{devices=[4,1]<=[4]}"),
        "axes": (hs.propagate_axes(hs.load(CLASH), "4", annotations={"free": "[[0]]"}), "mesh.cluster"),
    }


NAMES = (
    "propagation",
    "explanation",
    "conflict",
    "suggestion",
    "partitioned",
    "cost",
    "simulation",
    "plan",
    "sharding",
)


@pytest.mark.parametrize("name", [*NAMES, "axes"])
def test_a_value_shows_itself_in_a_notebook(name: str) -> None:
    value, word = values()[name]
    shown = value._repr_html_()
    assert shown == hs.to_html(value)
    assert word in words(shown)
    assert shown.count("<pre") == shown.count("</pre>") > 0


@pytest.mark.parametrize("name", ["plan", "sharding"])
def test_shardings_are_drawn(name: str) -> None:
    assert "<svg " in hs.to_html(values()[name][0])


@pytest.mark.parametrize("width", [80, 120])
def test_no_cell_is_cut_on_a_narrow_terminal(width: int) -> None:
    clash = hs.propagate(hs.load(CLASH))
    tables = [report.show_shardings(propagated()), report.show_conflicts(clash), report.show_collectives(partitioned())]
    for table in tables:
        console = Console(width=width)
        with console.capture() as text:
            console.print(table)
        assert "…" not in text.get()
        assert max(map(len, text.get().splitlines())) <= width
