"""Rows that come from rooms which the owner of a table does not import."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hlosharding.registry import Registry


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that enters a row."""
    (tmp_path / "a_plugin.py").write_text("from tests.unit.test_registry import TABLES\nTABLES[-1].add('b', 2)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_plugin", raising=False)
    return "a_plugin"


TABLES: list[Registry[str, int]] = []


def test_a_plugin_is_imported_when_its_table_is_first_asked(plugin: str) -> None:
    table = Registry[str, int]("sizes", plugins=(plugin,))
    TABLES.append(table)
    table.add("a", 1)
    assert plugin not in sys.modules
    assert (list(table), list(table.values()), table["b"], len(table)) == (["a", "b"], [1, 2], 2, 2)


@pytest.mark.parametrize(
    "ask", [lambda t: t.get("b"), lambda t: t["b"], lambda t: "b" in t and 2], ids=["get", "[]", "in"]
)
def test_every_question_finds_the_rows_of_plugins(plugin: str, ask: object) -> None:
    table = Registry[str, int]("sizes", plugins=(plugin,))
    TABLES.append(table)
    assert callable(ask)
    assert ask(table) == 2
