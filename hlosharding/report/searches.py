"""The view of a search for plans: the winner, why it won, and the alternatives.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.report.model import Column, Facts, Kind, Picture, Shown, Table, Text, View
from hlosharding.report.pareto import pareto, pareto_svg
from hlosharding.report.programs import step_record
from hlosharding.search import Improved, PricedPlan, SearchResult, spec_text


def search_view(result: SearchResult, *, most: int = 10) -> View:
    """The `most` fastest plans, with where their time goes; why the first won; plans that were refused."""
    rows = [_row(result, priced) for priced in result.table]
    has_tokens = any(row["tokens_per_s"] for row in rows)
    several = len({priced.batch_size for priced in result.table}) > 1
    columns = (
        Column(key="plan", heading="D/T/P/K"),
        *([Column(key="batch_size", heading="batch", kind=Kind.COUNT)] if several else []),
        Column(key="time_s", heading="step", kind=Kind.SECONDS),
        Column(key="compute_s", heading="computing", kind=Kind.SECONDS, priority=2),
        Column(key="exposed_s", heading="communicating", kind=Kind.SECONDS, priority=2),
        Column(key="idle_s", heading="idle", kind=Kind.SECONDS, priority=2),
        Column(key="peak_memory_bytes", heading="peak memory", kind=Kind.BYTES, priority=1),
        Column(key="fits", heading="fits"),
        Column(key="utilization", heading="MFU", kind=Kind.SHARE, priority=1),
        *([Column(key="tokens_per_s", heading="tokens/s", kind=Kind.COUNT, priority=2)] if has_tokens else []),
        Column(key="bound", heading="bound by", priority=3),
    )
    plans = Table(
        title=f"Plans for {result.machine.name}",
        key="plans",
        columns=columns,
        rows=rows,
        most=most,
        empty="none could be priced",
    )
    refused = refused_plans(
        [{"plan": str(each.plan), "batch_size": each.batch_size, "why": why} for each, why in result.refused], most
    )
    counts: dict[str, Any] = {
        "machine": result.machine.name,
        "priced": len(result.table),
        "refused_plans": len(result.refused),
        "pruned": [{"plan": str(each.plan), "least_s": least} for each, least in result.pruned],
    }
    trade = pareto(result.table)
    less_memory = Table(
        title="Less memory for more time",
        key="less_memory",
        columns=columns,
        rows=[_row(result, priced) for priced in trade],
        most=most,
        is_shown=len(trade) > 1,
    )
    said = Text(f"{result.explain()}\n{_counted(result)}")
    drawn = Picture(pareto_svg(result))
    return View((Facts(counts), said, drawn, plans, less_memory, refused), schema="hlosharding.search/1")


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
                "time_before_s": change.time_before_s,
                "time_s": change.time_s,
            }
            for change in found.changes
        ],
        empty="none helps",
    )
    facts: dict[str, Any] = {
        "machine": found.machine.name,
        "plan": str(found.start.plan),
        "time_before_s": found.start.time_s,
        "time_s": found.priced.time_s,
        "peak_memory_bytes": int(found.priced.peak_memory_bytes),
        "tried": found.tried,
        "is_done": found.is_done,
    }
    return View((Facts(facts), Text(str(found).splitlines()[0]), changes), schema="hlosharding.improved/1")


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
    parts = [f"{len(result.table)} plans priced"]
    if result.pruned:
        parts.append(f"{len(result.pruned)} left out, for they take longer by their arithmetic alone")
    if result.refused:
        parts.append(f"{len(result.refused)} refused")
    return ", ".join(parts)


def _row(result: SearchResult, priced: PricedPlan) -> dict[str, Any]:
    plan = priced.plan
    return {
        "plan": str(plan),
        "batch_size": priced.batch_size,
        "data": plan.data,
        "tensor": plan.tensor,
        "stages": plan.stages,
        "microbatches": plan.microbatches,
        "schedule": plan.schedule,
        "order": plan.order,
        "strategy": plan.strategy,
        "replicas": plan.replicas,
        "context": plan.context,
        "experts": plan.experts,
        "sequence": plan.sequence,
        "even": plan.even,
        "layers": list(plan.layers),
        "time_s": priced.time_s,
        "compute_s": priced.compute_s,
        "exposed_s": priced.exposed_s,
        "idle_s": priced.idle_s,
        "peak_memory_bytes": int(priced.peak_memory_bytes),
        "fits": Shown("yes" if priced.fits else "no", priced.fits),
        **step_record(result.figures(priced)),
    }
