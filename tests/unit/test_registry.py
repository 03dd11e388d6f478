"""Rows that come from rooms which the owner of a table does not import."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from hlosharding.registry import Registry

PLUGINS = ("first_plugin:ROWS", "second_plugin:ROWS")


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that have a row each."""
    for name, rows in (("first_plugin", {"b": 2}), ("second_plugin", {"c": 3})):
        (tmp_path / f"{name}.py").write_text(f"ROWS = {rows}\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)


def sizes() -> Registry[str, int]:
    table = Registry[str, int]("sizes", plugins=PLUGINS)
    table.add("a", 1)
    return table


def test_a_plugin_is_imported_when_its_table_is_first_asked() -> None:
    table = sizes()
    assert "first_plugin" not in sys.modules
    assert (list(table), list(table.values()), table["b"], len(table)) == (["a", "b", "c"], [1, 2, 3], 2, 3)


def test_the_order_does_not_depend_on_what_was_imported_before() -> None:
    importlib.import_module("second_plugin")
    assert list(sizes()) == ["a", "b", "c"]


def test_what_is_added_behind_a_filled_table_comes_last() -> None:
    table = sizes()
    table.fill()
    table.add("d", 4)
    assert list(table) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "ask", [lambda t: t.get("b"), lambda t: t["b"], lambda t: "b" in t and 2], ids=["get", "[]", "in"]
)
def test_every_question_finds_the_rows_of_plugins(ask: object) -> None:
    assert callable(ask)
    assert ask(sizes()) == 2
