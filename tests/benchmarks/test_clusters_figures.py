"""Figures of a set of runs, against those that a pocket calculator finds."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import pytest

from benchmarks.published.figures import line_of, untold
from benchmarks.published.pricing import Prediction
from benchmarks.published.runs import Run, UnsaidError
from benchmarks.published.transformer import LLAMA_8B
from hlosharding.search import Plan
from hlosharding.search.rank_figures import spearman

RUN = Run(model="Llama", config=LLAMA_8B, plan=Plan(8), batch=16, machine="h100", seconds=1.0)


def rows(*times: tuple[float, float], gpus: int = 8, batch: int = 16) -> list[tuple[Run, Prediction]]:
    """Of (predicted, measured) seconds."""
    return [
        (replace(RUN, plan=Plan(gpus), batch=batch, seconds=measured), Prediction(told, 70.0, told, 0.0, 0.0, 0.0))
        for told, measured in times
    ]


def test_errors_are_shares_of_what_was_measured() -> None:
    line = line_of(rows((1.1, 1.0), (3.0, 4.0), (2.0, 2.0)))
    assert (line.median_error, line.worst_error) == (pytest.approx(0.1), pytest.approx(0.25))
    assert line.mean_error == pytest.approx(0.35 / 3)
    assert (line.rows, line.told) == (3, 3)
    assert isnan(line.memory_error)


def test_memory_is_compared_where_it_was_measured() -> None:
    (run, found), other = rows((1.0, 1.0), (1.0, 1.0))
    line = line_of([(replace(run, gibibytes=100.0), found), other])
    assert line.memory_error == pytest.approx(0.3)


def test_regret_is_of_the_choice_among_plans_for_the_same_work() -> None:
    # Of 8 devices the second is picked: 12 s for 10 s; of 16 the best; of another batch there is no choice.
    found = rows((2.0, 10.0), (1.0, 12.0)) + rows((1.0, 5.0), (2.0, 6.0), gpus=16) + rows((1.0, 9.0), batch=32)
    line = line_of(found)
    assert (line.regret, line.worst_regret) == (pytest.approx(0.1), pytest.approx(0.2))


def test_ranks_in_groups_are_weighted_by_rows() -> None:
    right, wrong = (
        ((1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0), (5.0, 5.0), (6.0, 6.0)),
        ((1.0, 3.0), (2.0, 2.0), (3.0, 1.0)),
    )
    line = line_of(rows(*right) + rows(*wrong, gpus=16))
    assert line.rank_in_groups == pytest.approx((6 - 3) / 9)


def test_rank_correlation_is_of_orders() -> None:
    assert spearman([(1.0, 3.0), (2.0, 4.0), (9.0, 5.0)]) == pytest.approx(1)
    assert spearman([(1.0, 5.0), (2.0, 4.0), (9.0, 3.0)]) == pytest.approx(-1)


def test_what_was_not_told_is_counted_with_its_reason() -> None:
    lacking = (UnsaidError("a mixture of experts"), "a mixture of experts")
    found = [*rows((1.0, 1.0)), lacking, lacking, (RUN, "the batch is not cut")]
    assert untold(found) == {"a mixture of experts": 2, "the batch is not cut": 1}
    line = line_of(found)
    assert (line.rows, line.told) == (4, 1)
