"""What is left out between others is chosen as well as can be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from hlosharding.search.choices import SelectionProblem
from hlosharding.search.choices.elimination import eliminate_between
from tests.unit.search.choices.test_solver import best_of_all, problems


@given(problems(forbidden=False))
def test_what_is_left_costs_what_the_whole_does(problem: SelectionProblem) -> None:
    left = eliminate_between(problem)
    assert best_of_all(left.problem) == pytest.approx(best_of_all(problem))
    chosen = np.array([len(costs) - 1 for costs in left.problem.costs], np.int64)
    whole = left.expand(chosen)
    assert problem.cost_of(whole) == pytest.approx(left.problem.cost_of(chosen))
    assert (whole[list(left.kept)] == chosen).all()


def test_a_ring_of_any_length_becomes_a_pair() -> None:
    random, count, none = np.random.default_rng(0), 40, np.zeros(0, np.int64)
    pairs = np.array([(n, (n + 1) % count) for n in range(count)])
    tables = tuple(random.random((5, 5)) for _ in pairs)
    costs = tuple(random.random(5) for _ in range(count))
    ring = SelectionProblem(costs, pairs, tables, none, np.zeros((0, 2), np.int64), (), none)
    assert len(eliminate_between(ring).kept) == 1
