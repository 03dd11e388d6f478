"""Predictions beside measurements: every plan and every probe is in the record, and what is no number is null."""

from __future__ import annotations

import json
from dataclasses import replace

from hlosharding.cost import Calibration, machines
from hlosharding.cost.calibration import all_probes, fit_to_probes
from hlosharding.report import calibration_view, ranking_view, to_record, to_text
from hlosharding.search import Plan, RankedPlan, Ranking

ROWS = RankedPlan(Plan(2), 1.0, 3.0), RankedPlan(Plan(1, 2), 2.0, 2.0), RankedPlan(Plan(1, 1, 2, 2), 3.0, 4.0)


def test_a_ranking() -> None:
    ranking = Ranking.of(ROWS, [(Plan(3), "does not divide")], "here")
    record = to_record(ranking)
    assert [plan["plan"] for plan in record["plans"]] == ["1/2/1/1", "2/1/1/1", "1/1/2/2"]
    assert (record["runner"], record["spearman"], record["regret"]) == ("here", 0.5, 0.5)
    assert record["spearman_by_stages"] == {"1": -1.0, "2": None}
    assert record["refused"] == [{"plan": "3/1/1/1", "why": "does not divide"}]
    assert record["inversions"] == [{"plan": "2/1/1/1", "other": "1/2/1/1", "predicted": 2.0, "measured": 1.5}]
    text = to_text(ranking_view(ranking))
    assert "rank correlation 0.500" in text
    assert "Worst inversions" in text
    assert "Refused" in text


def test_of_no_plans() -> None:
    record = to_record(Ranking.of([]))
    assert record["spearman"] is record["median_error"] is record["regret"] is None
    json.dumps(record, allow_nan=False)


def calibrated() -> Calibration:
    real = replace(machines.a100(2), program_launch=1e-4)
    return fit_to_probes(machines.h100(2), all_probes(2), lambda probe: probe.predict_seconds(real))


def test_a_calibration() -> None:
    found = calibrated()
    record = to_record(found)
    assert len(record["measurements"]) == len(all_probes(2))
    assert {row["probe"] for row in record["measurements"]} == {str(probe) for probe in all_probes(2)}
    text = to_text(calibration_view(found))
    assert all(kind in text for kind in found.by_kind)
