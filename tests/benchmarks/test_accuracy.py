"""Repeatability is that of the plans that ran in both rounds."""

from __future__ import annotations

from benchmarks.accuracy import repeated
from hlosharding.search import Plan, RankedPlan, Ranking


def test_rounds_are_joined_by_size_and_plan() -> None:
    rows = {plan: RankedPlan(plan, 1.0, seconds) for plan, seconds in ((Plan(8), 2.0), (Plan(4, 2), 3.0))}
    again = [RankedPlan(Plan(4, 2), 1.0, 3.5)]
    first = {(32, 64): Ranking.of(rows.values()), (64, 64): Ranking.of(rows.values())}
    second = {(32, 64): Ranking.of(again), (64, 64): Ranking.of([])}
    assert repeated(first, second) == [(3.0, 3.5)]
