"""What notebooks show: every value that users get draws itself, names are data, tables do not leave a narrow page."""

from __future__ import annotations

import functools
import html
import re
from pathlib import Path
from typing import Any

import pytest

import hlosharding as hs
from hlosharding.report import Column, Lines, Table, Text, Tree, View, collectives_view
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
        "conflict": (clash.conflicts[0], "why it lost"),
        "suggestion": (hs.suggest(hs.load(CLASH), "free", machine=hs.machines.h100(4))[0], "annotate %free"),
        "partitioned": (partitioned(), "Collectives of one run"),
        "cost": (partitioned().cost, "Cost by source line"),
        "simulation": (hs.simulate(partitioned(), hs.machines.h100(8)), "Critical path"),
        "plan": (hs.plan_reshard((8, 8), "float32", rows, columns), "lower bound"),
        "sharding": (rows, "{devices=[4,1]<=[4]}"),
        "collective": (partitioned().explain(0), "needed by %"),
        "answers": (hs.explain(partitioned(), "#0"), "needed by %"),
        "report": (hs.report(partitioned()), "Replicated values"),
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
    "collective",
    "answers",
    "report",
)


@pytest.mark.parametrize("name", [*NAMES, "axes"])
def test_a_value_shows_itself_in_a_notebook(name: str) -> None:
    value, word = values()[name]
    shown = value._repr_html_()
    assert shown == hs.to_html(value)
    assert word in words(shown)
    for tag in ("pre", "table", "div"):
        assert len(re.findall(f"<{tag}[ >]", shown)) == shown.count(f"</{tag}>")


@pytest.mark.parametrize("name", ["plan", "sharding"])
def test_shardings_are_drawn(name: str) -> None:
    assert "<svg " in hs.to_html(values()[name][0])


@pytest.mark.parametrize("name", ["propagation", "conflict", "partitioned", "cost", "simulation"])
def test_every_table_scrolls_where_the_page_is_narrow(name: str) -> None:
    shown = hs.to_html(values()[name][0])
    tables = re.findall(r"(<div[^>]*>)<table", shown)
    assert len(tables) == shown.count("<table") > 0
    assert all("overflow-x:auto" in div for div in tables)


def test_strange_names_are_data() -> None:
    name = "</td><script>alert('x')</script>{{ 7 * 7 }}"
    column = Column(key="name", heading=name)
    table = Table(title=name, columns=(column,), rows=[{"name": name}])
    parts = (table, Text(name), Tree(f"{name}\n  {name}"), Lines("", [name]))
    shown = hs.to_html(View(parts))
    assert "<script" not in shown
    assert "49" not in shown
    assert words(shown).count(name) == 7


def test_a_view_shows_itself_and_any_other_value_its_text() -> None:
    view = collectives_view(partitioned())
    assert view._repr_html_() == hs.to_html(view)
    assert words(hs.to_html(3)) == "3"
