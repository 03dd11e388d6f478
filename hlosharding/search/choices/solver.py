"""Choices of a problem of any size.

Floor: search.
"""

from __future__ import annotations

import math
import time

import numpy as np

from hlosharding.search.choices.descent import descend
from hlosharding.search.choices.elimination import eliminate_between
from hlosharding.search.choices.integer_solvers import SOLVERS
from hlosharding.search.choices.problem import SelectionProblem
from hlosharding.search.choices.reductions import leave_out_dominated, merge_followers
from hlosharding.search.choices.whole import NOTHING, PROVEN, Choices, solve_whole

MOST_WHOLE = 1000
"""Nodes, once those that follow are left out, for which one integer program is tried; else for a part at a time."""
_WHOLE_SHARE = 0.6
"""Of the time, for that."""


def solve_choices(
    problem: SelectionProblem, seconds: float = 60.0, gap: float = PROVEN, solver: str = "highs"
) -> Choices:
    """The optimum, or the best choices found in so many seconds; and what no choices are below.  `gap`: the part of the
    cost by which something else may be better.  `solver`: of integer programs, one of `SOLVERS`.

    `chosen` is None where none were found that fit; where there are none at all the bound is `inf`.

    >>> import numpy as np
    >>> costs, usages = (np.array([1.0, 3.0]), np.array([2.0, 2.5])), (np.array([9.0, 1.0]), np.array([6.0, 0.0]))
    >>> pairs, pair_costs = np.array([[0, 1]]), (np.array([[0.0, 5.0], [4.0, 0.0]]),)
    >>> live, capacity = np.array([[0, 2], [1, 3]]), np.full(3, 8.0)
    >>> found = solve_choices(SelectionProblem(costs, pairs, pair_costs, np.arange(2), live, usages, capacity))
    >>> found.chosen, found.cost, found.is_proven
    (array([1, 1]), 5.5, True)
    """
    if not problem.costs:  # no solver takes a program without columns
        return Choices(np.zeros(0, np.int64), 0.0, 0.0)
    end = time.monotonic() + seconds
    merged = merge_followers(problem)
    if not all(map(len, merged.problem.costs)):
        return Choices(None, math.inf, math.inf)  # somewhere nothing is allowed
    between = eliminate_between(merged.problem)
    reduced = leave_out_dominated(between.problem)
    found = NOTHING
    if sum(len(costs) > 1 for costs in reduced.problem.costs) <= MOST_WHOLE:
        found = solve_whole(reduced.problem, _WHOLE_SHARE * (end - time.monotonic()), gap / 2, SOLVERS[solver])
    if not found.is_within(gap):
        found = descend(reduced.problem, end - time.monotonic(), found)
    if found.chosen is None:
        return found
    chosen = merged.expand(between.expand(reduced.expand(found.chosen)))
    return Choices(chosen, problem.cost_of(chosen), found.bound)
