"""Figures of predictions: rank correlation as scipy has it, the others by hand."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlosharding.search import rank_figures

SECONDS = st.floats(1e-6, 1e3)


@given(st.lists(st.tuples(SECONDS, st.sampled_from([1.0, 2.0, 3.0, 4.0])), min_size=3, max_size=20))
def test_rank_correlation_is_that_of_scipy(times: list[tuple[float, float]]) -> None:
    from scipy import stats  # takes as long as all other imports of a collection

    predicted, measured = zip(*times, strict=True)
    if len(set(predicted)) < 2 or len(set(measured)) < 2:
        assert isnan(rank_figures.spearman(times))
    else:
        expected = stats.spearmanr(np.array(predicted), np.array(measured)).statistic
        assert rank_figures.spearman(times) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("times", [[], [(1.0, 2.0)], [(1.0, 2.0), (1.0, 3.0)]])
def test_there_is_none_of_too_few_or_of_ties(times: list[tuple[float, float]]) -> None:
    assert isnan(rank_figures.spearman(times))


def test_errors_before_and_after_one_factor() -> None:
    times = [(1.0, 2.0), (2.0, 4.0), (6.0, 6.0)]
    assert rank_figures.median_error(times) == 0.5
    assert rank_figures.common_scale(times) == pytest.approx(2.0)
    assert rank_figures.median_error(times, scale=2.0) == 0.0
    assert isnan(rank_figures.median_error([]))


def test_regret_is_what_the_choice_costs() -> None:
    assert rank_figures.regret([(1.0, 5.0), (2.0, 4.0)]) == 0.25
    assert rank_figures.regret([(1.0, 4.0), (2.0, 5.0)]) == 0.0
    assert isnan(rank_figures.regret([]))


def test_the_worst_inversion_comes_first() -> None:
    times = [(1.0, 40.0), (2.0, 10.0), (3.0, 30.0), (4.0, 50.0)]
    found = rank_figures.find_inversions(times)
    assert [(each.first, each.second) for each in found] == [(0, 1), (0, 2)]
    assert (found[0].predicted, found[0].measured) == (2.0, 4.0)
    assert rank_figures.find_inversions(times, most=1) == found[:1]
    assert rank_figures.find_inversions(list(reversed(times)))[0][:2] == (3, 2)


def test_equal_times_are_no_inversion() -> None:
    assert rank_figures.find_inversions([(1.0, 2.0), (1.0, 1.0), (2.0, 1.0)], most=9)[0][:2] == (0, 2)
    assert len(rank_figures.find_inversions([(1.0, 2.0), (1.0, 1.0), (2.0, 2.0)])) == 0
