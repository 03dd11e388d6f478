"""A partitioned program at one glance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hlosharding.report import overrides_view, partitioned_view, to_record, warnings_view
from tests.support.shown_programs import partitioned, rows_of, text_of
from tests.support.split_programs import split
from tests.unit.partitioner.overrides.test_batch_parallel import two_layers


def test_the_summary_holds_cost_and_collectives() -> None:
    text = text_of(partitioned_view(partitioned()))
    for words in ("global on 8 devices", "peak memory", "Collectives of one run"):
        assert words in text


def test_warnings_are_lines_of_plain_text() -> None:
    warned: Any = SimpleNamespace(warnings=("custom-call [/foo] at m.py:3 is replicated: 12 bytes",))
    view = warnings_view(warned)
    assert text_of(view) == "warning: custom-call [/foo] at m.py:3 is replicated: 12 bytes"
    assert to_record(view) == {"warnings": list(warned.warnings)}
    assert text_of(warnings_view(SimpleNamespace(warnings=()))) == ""  # pyright: ignore[reportArgumentType]


def test_sharding_overrides_are_a_table_where_there_are_any() -> None:
    title, plain = "Sharded otherwise than propagated", split(two_layers(16, 128))
    assert title not in text_of(partitioned_view(plain))
    assert to_record(plain)["sharding_overrides"] == []
    local = split(two_layers(512, 16))
    assert title in text_of(partitioned_view(local))
    record = to_record(local)["sharding_overrides"]
    assert [one["name"] for one in record] == [one.name for one in local.sharding_overrides]
    assert {one["chosen"] for one in record} == {"{devices=[8,1]<=[8]}"}


def test_of_many_sharding_overrides_the_first_are_shown_and_the_rest_counted() -> None:
    local = split(two_layers(512, 16))
    head, first, others = rows_of(overrides_view(local, most=1))[:3]
    more = len(local.sharding_overrides) - 1
    assert head[3:5] == ["propagated", "chosen"]
    assert first[0] == "%h1"
    assert (others[0], others[5]) == (f"{more} others", str(more))
    assert rows_of(overrides_view(split(two_layers(16, 128))))[1][0] == "none"
