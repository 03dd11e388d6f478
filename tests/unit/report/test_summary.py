"""A partitioned program at one glance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.partitioner.test_spreading import two_layers

from hlosharding import report
from tests.support.shown_programs import partitioned, rows_of, text_of
from tests.support.split_programs import split


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


def test_departures_from_propagation_are_a_table_where_there_are_any() -> None:
    title = "Sharded otherwise than propagated"
    assert title not in text_of(report.show_partitioned(partitioned()))
    local = split(two_layers(512, 16))
    assert title in text_of(report.show_partitioned(local))
    record = report.partitioned_record(local)["sharding overrides"]
    assert [one["name"] for one in record] == [one.name for one in local.sharding_overrides]
    assert {one["chosen"] for one in record} == {"{devices=[8,1]<=[8]}"}
    head, first, others = rows_of(report.show_sharding_overrides(local, limit=1))[:3]
    assert head[3:5] == ["propagated", "chosen"]
    assert first[0] == "%h1"
    assert (others[0], others[5]) == ("others", str(len(local.sharding_overrides) - 1))
    assert rows_of(report.show_sharding_overrides(partitioned()))[1][0] == "none"
