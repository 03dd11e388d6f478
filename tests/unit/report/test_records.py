"""Records are plain JSON, name their schema, and docs/cli.md tells every key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hlosharding import report
from tests.unit.report.programs import local_module, partitioned, propagated

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text()
NAMES_AS_KEYS = {"shardings", "by_location", "by_opcode"}


def records() -> dict[str, report.Record]:
    found = propagated()
    return {
        "module": report.module_record(local_module()),
        "propagation": report.propagation_record(found),
        "explanation": report.explanations_record([found.explain("out"), found.explain("x")]),
        "partition": report.partitioned_record(partitioned()),
    }


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from keys(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from keys(list(item.values()) if key in NAMES_AS_KEYS else item)


@pytest.mark.parametrize("kind", ["module", "propagation", "explanation", "partition"])
def test_a_record_is_json_and_documented(kind: str) -> None:
    record = records()[kind]
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["schema"] == f"hlosharding.{kind}/1"
    assert f"`{record['schema']}`" in PAGE
    assert not [key for key in {*keys(record)} - {"schema"} if f"`{key}`" not in PAGE]


def test_figures_are_those_of_the_objects() -> None:
    found = partitioned()
    record = report.partitioned_record(found)
    assert record["cost"]["comm_bytes"] == found.comm_bytes_per_device
    assert sum(one["bytes_per_device"] for one in record["collectives"]) == found.comm_bytes_per_device
    assert record["parameters"][3]["local_shape"] == "f32[128,2]"
    assert record["parameters"][3]["sharding"] == "{devices=[1,8]<=[8]}"


def test_an_explanation_ends_at_what_was_given() -> None:
    [out, x] = report.explanations_record([propagated().explain("out"), propagated().explain("x")])["explanations"]
    assert out["chain"][0]["name"] == "out"
    assert out["chain"][-1]["from"] is None
    assert [link["name"] for link in x["chain"]] == ["x"]
