"""A search for people and for programs: what won, what each other choice costs, what would change it."""

from __future__ import annotations

import json

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.report import search_view, to_html, to_record, to_text
from hlosharding.search import pareto
from tests.support.training_steps import perceptron as step

LAYERS = [jax.ShapeDtypeStruct((64, 64), np.float32)] * 3


def found() -> hs.SearchResult:
    """Of a program that is annotated for as many devices."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("batch",))
    module = hs.trace(step, mesh=mesh, in_shardings=(P("batch"), P("batch")))(
        LAYERS, jax.ShapeDtypeStruct((32, 64), np.float32)
    )
    return hs.search(module, batch=["x"], machine=machines.h100(4), microbatches=(2,))


def test_a_record_has_all_that_is_shown() -> None:
    result = found()
    changes = result.what_if()
    record = json.loads(json.dumps(to_record(search_view(result, what_if=changes))))
    assert record["schema"] == "hlosharding.search/2"
    assert record["front"] == [str(each.plan) for each in pareto(result.table)]
    assert [(row["choices"], row["plan"]) for row in record["runners_up"]] == [
        (list(one.choices), str(one.priced.plan)) for one in result.runners_up
    ]
    assert all(row["times_as_long"] == row["time_s"] / result.table[0].time_s for row in record["runners_up"])
    assert [(row["condition"], row["time_s"]) for row in record["what_if"]] == [
        (one.condition, one.best.time_s) for one in changes
    ]
    assert result.present is not None
    assert len(record["present"]["differing"]) == len(result.present.changes)


def test_a_terminal_and_a_page_say_the_same() -> None:
    result = found()
    view = search_view(result, what_if=result.what_if())
    for shown in (to_text(view, width=200), to_html(view)):
        for title in (
            "What each other choice costs",
            "What would change it",
            "Annotations that differ",
            "Plans for h100(4)",
        ):
            assert title in shown
        assert all(str(one.priced.plan) in shown for one in result.runners_up)
    assert "# on the front" in to_text(view, width=200)
    assert "<svg" in to_html(view)


def test_where_nothing_could_be_priced_the_reason_is_all_there_is() -> None:
    nothing = hs.search(
        hs.trace(step)(LAYERS, np.ones((32, 64), np.float32)), batch=["x"], machine=machines.h100(3), plans=[hs.Plan(3)]
    )
    text = to_text(search_view(nothing), width=200)
    assert text.startswith("no plan could be priced on h100(3); 1 of 1 refused")
    assert "What" not in text
