"""Who solves integer programs: HiGHS, as scipy brings it, or OR-tools (extra `or-tools`).

Floor: search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from hlosharding.errors import HloShardingError
from hlosharding.search.choices.problem import Numbers


class IntegerProgram(NamedTuple):
    """Columns from 0 to `most`; rows between `low` and `high`; the least cost is wanted."""

    cost: Numbers
    most: Numbers
    is_whole: Any
    """[column]: must it be a whole number?"""
    table: Any
    """[row, column], sparse, by rows."""
    low: Numbers
    high: Numbers


class Answer(NamedTuple):
    """Of a solver."""

    columns: Numbers | None
    """None where it found none in time, or there are none."""
    bound: float
    """Nothing costs less; `inf` where no columns satisfy all rows."""


Solver = Callable[[IntegerProgram, float, float], Answer]
"""Of a program, in so many seconds, up to this part of the cost."""


def solve_by_highs(program: IntegerProgram, seconds: float, gap: float) -> Answer:
    """By branch and cut.

    >>> from scipy.sparse import csr_array
    >>> one, both = np.ones(2), csr_array(np.ones((1, 2)))
    >>> program = IntegerProgram(np.array([2.0, 1.0]), one, one > 0, both, np.ones(1), np.ones(1))
    >>> solve_by_highs(program, 1.0, 0.0)
    Answer(columns=array([0., 1.]), bound=1.0)
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    limits: Any = program.low, program.high
    most: Any = program.most
    found: Any = milp(
        program.cost,
        constraints=LinearConstraint(program.table, *limits),
        integrality=program.is_whole.astype(int),
        bounds=Bounds(0.0, most),
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
    known = -math.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
    # Status 2 of `scipy.optimize.milp`: nothing satisfies all rows.
    return Answer(found.x, math.inf if found.status == 2 else known)


def solve_by_or_tools(program: IntegerProgram, seconds: float, gap: float) -> Answer:
    """By SCIP, as OR-tools brings it.  Raises HloShardingError where it is not installed."""
    try:
        model_builder: Any = import_module("ortools.linear_solver.python.model_builder")
    except ImportError:
        remedy = "pip install 'hlosharding[or-tools]', or take HiGHS"
        raise HloShardingError("OR-tools is not installed", remedy=remedy) from None
    from scipy.sparse import csr_matrix

    model: Any = model_builder.Model()
    own = csr_matrix(program.table)
    arrays = program.most, program.cost, program.low, program.high
    most, cost, low, high = (np.asarray(each, float) for each in arrays)
    model.helper.fill_model_from_sparse_data(np.zeros(len(cost)), most, cost, low, high, own)
    for column in np.flatnonzero(program.is_whole).tolist():
        model.helper.set_var_integrality(column, True)
    solver: Any = model_builder.Solver("scip")
    solver.set_time_limit_in_seconds(seconds)
    solver.set_solver_specific_parameters(f"limits/gap = {gap}")
    status = solver.solve(model)
    statuses = model_builder.SolveStatus
    if status == statuses.INFEASIBLE:
        return Answer(None, math.inf)
    if status not in (statuses.OPTIMAL, statuses.FEASIBLE):
        return Answer(None, -math.inf)
    columns = np.array(solver.values(model.get_variables()), float)
    return Answer(columns, float(solver.best_objective_bound))


SOLVERS: Mapping[str, Solver] = {"highs": solve_by_highs, "or-tools": solve_by_or_tools}
