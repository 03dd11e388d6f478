"""The view of a search for plans: the winner, why it won, and the alternatives.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.report.model import Column, Facts, Kind, Picture, Row, Shown, Table, Text, View, Within, fields_of
from hlosharding.report.pareto import pareto_svg, pareto_text
from hlosharding.report.shardings import shared_path
from hlosharding.report.streams import step_record
from hlosharding.search import (
    Improved,
    Present,
    PricedPlan,
    SearchResult,
    WhatIf,
    argument_path,
    of_memory,
    pareto,
    spec_text,
)
from hlosharding.sharding import MeshInfo, spell


def search_view(result: SearchResult, *, most: int = 10, what_if: Sequence[WhatIf] = ()) -> View:
    """What the best plan takes, what each other choice costs, and what would change it; the `most` fastest plans, with
    where their time goes; plans that were refused.  `what_if`: of other links and batches (`SearchResult.what_if`)."""
    columns = _plan_columns(result)
    plans = Table(
        title=f"Plans for {result.machine.name}",
        key="plans",
        columns=columns,
        rows=[_row(result, priced) for priced in result.table],
        most=most,
        empty="none could be priced",
    )
    refused = [{"plan": str(each.plan), "batch_size": each.batch_size, "why": why} for each, why in result.refused]
    facts = Facts.of(
        machine=result.machine.name,
        priced=len(result.table),
        refused_plans=len(result.refused),
        pruned=[{"plan": str(each.plan), "least_s": least} for each, least in result.pruned],
        front=[str(each.plan) for each in pareto(result.table)],
    )
    changes = _what_if([*of_memory(result.table, result.machine), *what_if])
    present = [_present(result.present)] if result.present is not None else []
    said = Text("\n".join(filter(None, (result.notes, _counted(result)))))
    drawn = Picture(pareto_svg(result), pareto_text(result), "Plans: time against memory")
    parts = facts, Text(result.headline), _runners_up(result), changes, *present, said, plans, drawn
    return View((*parts, refused_plans(refused, most)), schema="hlosharding.search/2")


def _plan_columns(result: SearchResult) -> tuple[Column, ...]:
    has_tokens = any(result.figures(priced).tokens_per_s for priced in result.table[:1])
    several = len({priced.batch_size for priced in result.table}) > 1
    return (
        _PLAN,
        *([Column(key="batch_size", heading="batch", kind=Kind.COUNT)] if several else []),
        _STEP,
        Column(key="compute_s", heading="computing", kind=Kind.SECONDS, priority=2),
        Column(key="exposed_s", heading="communicating", kind=Kind.SECONDS, priority=2),
        Column(key="idle_s", heading="idle", kind=Kind.SECONDS, priority=2),
        _MEMORY,
        _FITS,
        Column(key="utilization", heading="MFU", kind=Kind.SHARE, priority=1),
        *([Column(key="tokens_per_s", heading="tokens/s", kind=Kind.COUNT, priority=2)] if has_tokens else []),
        Column(key="bound", heading="bound by", priority=3),
    )


_PLAN = Column(key="plan", heading="D/T/P/K")
_STEP = Column(key="time_s", heading="step", kind=Kind.SECONDS)
_MEMORY = Column(key="peak_memory_bytes", heading="peak memory", kind=Kind.BYTES, priority=1)
_FITS = Column(key="fits", heading="fits")


def _runners_up(result: SearchResult) -> Table:
    rows: list[Row] = [
        {
            "choices": Shown(", ".join(one.choices), one.choices),
            **_row(result, one.priced),
            "times_as_long": one.times_as_long,
            "against": one.gains,
        }
        for one in result.runners_up
    ]
    columns = (
        Column(key="choices", heading="other"),
        _PLAN,
        _STEP,
        Column(key="times_as_long", heading="times as long", kind=Kind.RATIO),
        Column(key="against", heading="against the best", kind=Kind.PROSE, priority=2),
        _MEMORY,
        _FITS,
    )
    title = "What each other choice costs"
    return Table(title=title, key="runners_up", columns=columns, rows=rows, is_shown=bool(rows))


def _what_if(changes: Sequence[WhatIf]) -> Table:
    rows: list[Row] = [
        {
            "condition": one.condition,
            "plan": str(one.best.plan),
            "batch_size": one.best.batch_size,
            **_figures(one.best),
            "today_s": _today(one),
        }
        for one in changes
    ]
    columns = (
        Column(key="condition", heading="", kind=Kind.PROSE),
        Column(key="plan", heading="best then"),
        _STEP,
        Column(key="today_s", heading="today's best", kind=Kind.SECONDS),
        _MEMORY,
        _FITS,
    )
    title = "What would change it"
    return Table(title=title, key="what_if", columns=columns, rows=rows, is_shown=bool(rows))


def _today(answer: WhatIf) -> Shown | float | None:
    """What today's best takes then; people know it where it stays the best."""
    if answer.today is None:
        return None
    return Shown("the same", answer.today.time_s) if answer.today == answer.best else answer.today.time_s


def _present(present: Present) -> Within:
    known: dict[tuple[str, tuple[str, str]], str] = {}
    rows: list[Row] = []
    for change in present.changes:
        texts = spell(change.before, present.mesh), spell(change.after, present.found_mesh)
        path = argument_path(change.value)
        line = change.location if change.value.opcode != "parameter" else ""
        said = {"argument": Shown(shared_path(path, texts, known), path), "line": line}
        rows.append({**said, "today": texts[0], "plan": texts[1], "times": 1})
    columns = (
        Column(key="argument", heading="argument"),
        Column(key="line", heading="constraint at", kind=Kind.LOCATION),
        Column(key="today", heading=f"as annotated{_axes_text(present.mesh)}"),
        Column(key="plan", heading=f"{present.found.plan}{_axes_text(present.found_mesh)}"),
        Column(key="times", heading="times", kind=Kind.COUNT, sums=True, in_record=False, priority=1),
    )
    priced, title = present.priced, "Annotations that differ"
    table = Table(title=title, key="differing", columns=columns, rows=rows, joins=True, is_shown=bool(rows))
    return Within("present", View((Facts(_figures(priced)), Text(present), table)))


def _figures(priced: PricedPlan | str) -> dict[str, Any]:
    if isinstance(priced, str):
        return {"refused": priced}
    fits = Shown("yes" if priced.fits else "no", priced.fits)
    return {"time_s": priced.time_s, "peak_memory_bytes": int(priced.peak_memory_bytes), "fits": fits}


def _axes_text(mesh: MeshInfo | None) -> str:
    axes = zip(mesh.names, mesh.sizes, strict=True) if mesh is not None else ()
    return "".join(f", {name} {size}" for name, size in axes if size > 1)


def improved_view(found: Improved) -> View:
    """What was changed, and what a step takes before and after each change."""
    changes = Table(
        title=f"Changes of {found.start.plan}",
        key="changes",
        columns=(
            Column(key="argument", heading="argument"),
            Column(key="before", heading="was"),
            Column(key="after", heading="is"),
            Column(key="time_before_s", heading="step before", kind=Kind.SECONDS, priority=1),
            Column(key="time_s", heading="step", kind=Kind.SECONDS),
        ),
        rows=[
            {
                "argument": change.argument,
                "before": spec_text(change.before),
                "after": spec_text(change.after),
                **fields_of(change, "time_before_s time_s"),
            }
            for change in found.changes
        ],
        empty="none helps",
    )
    facts = Facts.of(
        machine=found.machine.name,
        plan=str(found.start.plan),
        time_before_s=found.start.time_s,
        time_s=found.priced.time_s,
        peak_memory_bytes=int(found.priced.peak_memory_bytes),
        **fields_of(found, "tried is_done"),
    )
    return View((facts, Text(str(found).splitlines()[0]), changes), schema="hlosharding.improved/1")


def refused_plans(rows: Sequence[dict[str, Any]], most: int | None = None) -> Table:
    """Plans that a program does not allow, and why; nothing where there are none."""
    return Table(
        title="Refused",
        key="refused",
        columns=(Column(key="plan", heading="D/T/P/K"), Column(key="why", heading="why", kind=Kind.PROSE)),
        rows=rows,
        most=most,
        is_shown=bool(rows),
    )


def _counted(result: SearchResult) -> str:
    pruned = "left out, for they take longer by their arithmetic alone"
    counted = ((result.table, "plans priced"), (result.pruned, pruned), (result.refused, "refused"))
    return ", ".join(f"{len(each)} {what}" for n, (each, what) in enumerate(counted) if each or not n)


def _row(result: SearchResult, priced: PricedPlan) -> dict[str, Any]:
    plan = priced.plan
    return {
        "plan": str(plan),
        "batch_size": priced.batch_size,
        **fields_of(plan, "data tensor stages microbatches schedule order strategy replicas context experts"),
        **fields_of(plan, "sequence recompute even layers"),
        **fields_of(priced, "time_s compute_s exposed_s idle_s"),
        **_figures(priced),
        **step_record(result.figures(priced)),
    }
