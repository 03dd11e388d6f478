"""Records are plain JSON, name their schema, and docs/cli.md tells every key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hlosharding as hs
from hlosharding.compiler import MemoryUse, OptimizedProgram
from hlosharding.report import (
    Record,
    answers_view,
    collective_explanations_view,
    conflicts_view,
    difference_view,
    executable_view,
    explanations_view,
    exported_view,
    module_view,
    partitioned_view,
    propagation_view,
    reshard_view,
    sharding_view,
    simulation_view,
    suggestions_view,
    to_record,
    trace_view,
)
from tests.support.shown_programs import local_module, partitioned, propagated

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "cli.md").read_text()
CLASH = (DOCS / "clash.hlo").read_text()
ROWS, COLUMNS = "{devices=[4,1]<=[4]}", "{devices=[1,4]<=[4]}"
NAMES_AS_KEYS = {"shardings", "by_location", "by_opcode", "differing", "options", "mesh"}
TEXT_BY_NAME = {"annotations", "shardings"}


def records() -> dict[str, Record]:
    found, clash = propagated(), hs.propagate(hs.load(CLASH))
    other = hs.propagate(hs.annotate(hs.load(CLASH), {"free": ROWS}))
    views = {
        "module": module_view(local_module()),
        "propagation": propagation_view(found),
        "explanation": explanations_view([found.explain("out"), found.explain("x")]),
        "partition": partitioned_view(partitioned()),
        "conflicts": conflicts_view(clash.conflicts),
        "trace": trace_view(clash),
        "difference": difference_view(hs.diff(clash, other)),
        "export": exported_view(hs.export_plan(hs.annotate(hs.load(CLASH), {"free": ROWS}))),
        "suggestions": suggestions_view(hs.suggest(hs.load(CLASH), "free", machine=hs.machines.h100(4))),
        "compile": executable_view(partitioned(), *executables(), "h100(8)"),
        "reshard": reshard_view(plan()),
        "simulation": simulation_view(hs.simulate(partitioned(), hs.machines.h100(8))),
        "sharding": sharding_view(hs.HloSharding.parse("{{devices=[2,1,2]<=[4] last_tile_dim_replicate}}")),
        "collective": collective_explanations_view([partitioned().explain(0)]),
        "answers": answers_view(hs.explain(partitioned(), "out")),
        "report": hs.report(partitioned(), against=partitioned()).view,
        "axes": hs.propagate_axes(hs.load(CLASH), "4", annotations={"free": "[[0]]"}),
    }
    return {kind: to_record(view) for kind, view in views.items()}


def executables() -> tuple[OptimizedProgram, OptimizedProgram]:
    """Of two programs with memory of their own; XLA's has no temporaries."""
    text = local_module().to_hlo_text()
    return OptimizedProgram(text, MemoryUse(8, 4, 0, 16, 28)), OptimizedProgram(text, MemoryUse(8, 4, 0, 0, 12))


def plan() -> hs.ReshardPlan:
    return hs.plan_reshard((8, 8), "float32", *map(hs.HloSharding.parse, (ROWS, COLUMNS)))


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from keys(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            if not (key in TEXT_BY_NAME and isinstance(item, dict)):
                yield from keys(list(item.values()) if key in NAMES_AS_KEYS else item)


OTHERS = ("compile", "export", "reshard", "simulation", "sharding", "axes", "collective", "answers", "report")
KINDS = ("module", "propagation", "explanation", "partition", "conflicts", "trace", "difference", "suggestions")


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_a_record_is_json_and_documented(kind: str) -> None:
    record = records()[kind]
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["schema"] == f"hlosharding.{kind}/{2 if kind == 'report' else 1}"
    assert f"`{record['schema']}`" in PAGE
    assert not [key for key in {*keys(record)} - {"schema"} if f"`{key}`" not in PAGE]


def test_figures_are_those_of_the_objects() -> None:
    found = partitioned()
    record = to_record(found)
    assert record["cost"]["comm_bytes"] == found.comm_bytes_per_device
    assert sum(one["bytes_per_device"] for one in record["collectives"]) == found.comm_bytes_per_device
    assert record["parameters"][3]["local_shape"] == "f32[128,2]"
    assert record["parameters"][3]["sharding"] == "{devices=[1,8]<=[8]}"


def test_memory_of_two_executables_stands_side_by_side() -> None:
    record = records()["compile"]
    assert record["memory"]["arguments"] == {"ours": 8, "xla": 8, "ratio": 1.0}
    assert record["memory"]["temporaries"] == {"ours": 16, "xla": 0, "ratio": None}
    planned = sum(row["planned_bytes"] for row in record["collectives"])
    assert planned == partitioned().comm_bytes_per_device


def test_an_explanation_ends_at_what_was_given() -> None:
    view = explanations_view([propagated().explain("out"), propagated().explain("x")])
    [out, x] = to_record(view)["explanations"]
    assert out["chain"][0]["name"] == "out"
    assert out["chain"][-1]["from"] is None
    assert [link["name"] for link in x["chain"]] == ["x"]


def test_a_record_says_what_the_value_says() -> None:
    (lost, _) = hs.propagate(hs.load(CLASH)).conflicts
    (record,) = hs.to_record(lost)["conflicts"]
    assert (record["winner"]["name"], record["loser"]["name"], record["offered"]) == ("free", "rows", ROWS)
    assert (record["held_since"]["name"], record["offered_since"]["name"]) == ("c", "x")
    assert hs.to_record(plan())["received_bytes"] == plan().mean_received_bytes
    assert sum(step["received_bytes"] for step in hs.to_record(plan())["steps"]) == plan().mean_received_bytes


def test_what_has_no_record_is_refused_with_a_list_of_what_has() -> None:
    with pytest.raises(
        hs.HloShardingError, match="a int has no record; there are records of AxisPropagation, Calibration, Collective"
    ):
        hs.to_record(3)
