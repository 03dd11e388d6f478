"""The views of predictions beside measurements: plans that were run, and a machine that was calibrated.

Floor: report.
"""

from __future__ import annotations

from math import isfinite
from statistics import median
from typing import Any

from hlosharding.cost import Calibration, Measurement
from hlosharding.report.model import Column, Facts, Kind, Shown, Table, Text, View, fields_of
from hlosharding.report.searches import refused_plans
from hlosharding.search import Ranking

_TIMES = (
    Column(key="predicted_s", heading="predicted", kind=Kind.SECONDS),
    Column(key="measured_s", heading="measured", kind=Kind.SECONDS),
    Column(key="ratio", heading="ratio", kind=Kind.RATIO),
)


def ranking_view(ranking: Ranking, *, most: int = 20) -> View:
    """The `most` fastest plans, the figures of the prediction, the worst inversions, and what was refused."""
    plans = Table(
        title=f"Plans, {ranking.runner}" if ranking.runner else "Plans",
        key="plans",
        columns=(Column(key="plan", heading="D/T/P/K"), *_TIMES),
        rows=[{"plan": str(row.plan), **_times(row.predicted_s, row.measured_s)} for row in ranking.table],
        most=most,
        empty="none could be run",
    )
    refused = refused_plans([{"plan": str(plan), "why": why} for plan, why in ranking.refused])
    return View((_figures(ranking), Text(ranking), plans, _inversions(ranking), refused), schema=_SCHEMA)


_SCHEMA = "hlosharding.ranking/1"


def _figures(ranking: Ranking) -> Facts:
    by_stages = {str(stages): _finite(value) for stages, value in ranking.spearman_by_stages.items()}
    others = fields_of(ranking, "median_error scaled_median_error regret")
    return Facts.of(
        runner=ranking.runner,
        spearman=_finite(ranking.spearman),
        spearman_by_stages=by_stages,
        **{name: _finite(value) for name, value in others.items()},
    )


def _inversions(ranking: Ranking) -> Table:
    plans = [str(row.plan) for row in ranking.table]
    rows = [
        {"plan": plans[each.first], "other": plans[each.second], **fields_of(each, "predicted measured")}
        for each in ranking.inversions
    ]
    return Table(
        title="Worst inversions",
        key="inversions",
        columns=(
            Column(key="plan", heading="should be faster"),
            Column(key="other", heading="than"),
            Column(key="predicted", heading="so many times", kind=Kind.RATIO),
            Column(key="measured", heading="takes so many times as long", kind=Kind.RATIO),
        ),
        rows=rows,
        is_shown=bool(rows),
    )


def calibration_view(found: Calibration) -> View:
    """How far the fitted machine is off, by kind of probe; a record has every measurement."""
    kinds = Table(
        title=f"{found.machine.name}: how far the fitted figures are off",
        key="",
        columns=(
            Column(key="kind", heading="measured"),
            Column(key="count", heading="how many", kind=Kind.COUNT),
            Column(key="median", heading="off, median", kind=Kind.RATIO),
            Column(key="most", heading="worst", kind=Kind.RATIO),
            Column(key="worst", heading="which"),
        ),
        rows=[_of_kind(kind, each, found.worst(kind)) for kind, each in found.by_kind.items()],
    )
    every = Table(
        title="Measurements",
        key="measurements",
        columns=(Column(key="probe", heading="probe"), *_TIMES),
        rows=[{"probe": str(m.probe), **_times(m.predicted_s, m.measured_s)} for m in found.measurements],
        is_shown=False,
    )
    facts = Facts({"machine": found.machine.name, "measured_on": dict(found.measured_on)})
    return View((facts, kinds, every), schema="hlosharding.calibration/1")


def _of_kind(kind: str, found: list[Measurement], worst: Measurement) -> dict[str, Any]:
    off = median(each.off for each in found)
    return {"kind": kind, "count": len(found), "median": off, "most": worst.off, "worst": str(worst.probe)}


def _times(predicted: float, measured: float) -> dict[str, Any]:
    return {"predicted_s": predicted, "measured_s": measured, "ratio": predicted / measured}


def _finite(value: float) -> Shown:
    """JSON has no word for what is no number."""
    return Shown(f"{value:.3f}", value) if isfinite(value) else Shown("", None)
