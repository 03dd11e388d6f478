"""A choice problem as an integer program.

Floor: search.  Marginal formulation: a variable for each pair of choices, which add up to the choice at either end.
Its relaxation is far closer than that of pairs that must be 1 where both ends are.
"""

from __future__ import annotations

import math
import sys
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hlosharding.search.choices.integer_solvers import IntegerProgram, Solver, solve_by_highs
from hlosharding.search.choices.problem import Integers, Numbers, SelectionProblem

_FIRST, _MORE = 100, 30
"""Times at which memory is asked for at first, and with each answer that does not fit."""


class Choices(NamedTuple):
    """What was found."""

    chosen: Integers | None
    """[node]: its choice; None where none was found that fits."""
    cost: float
    bound: float
    """No choice costs less."""

    @property
    def is_proven(self) -> bool:
        """Is there nothing better?"""
        return self.is_within(PROVEN)

    def is_within(self, gap: float) -> bool:
        """Is nothing better by more than this part of the cost?"""
        # Where nothing was found the cost is inf, and so is the gap: without a largest float it would count as proven.
        return self.bound == math.inf or self.cost - self.bound <= min(gap * abs(self.cost), sys.float_info.max)


NOTHING = Choices(None, math.inf, -math.inf)
PROVEN = 1e-6
"""Of the cost: what a solver's tolerances leave open."""


def solve_whole(
    problem: SelectionProblem, seconds: float = math.inf, gap: float = 5e-7, solver: Solver = solve_by_highs
) -> Choices:
    """The optimum, if time suffices; else the best found, if any, and how far it may be.

    Memory is asked for at some times, then also where the choices that were found do not fit, until they do.

    >>> costs, pair = (np.array([1.0, 3.0]), np.array([2.0, 1.0])), np.array([[0.0, 5.0], [9.0, 0.0]])
    >>> none = np.zeros(0, int)
    >>> solve_whole(SelectionProblem(costs, np.array([[0, 1]]), (pair,), none, np.zeros((0, 2), int), (), np.ones(1)))
    Choices(chosen=array([0, 0]), cost=3.0, bound=3.0)
    """
    program, end = _ChoiceProgram(problem), time.monotonic() + seconds
    bound = -math.inf
    times = _peaks(problem.over_time(np.array([usage.min() for usage in problem.usages])), problem.tight, _FIRST)
    program.limit_memory(times)
    while True:
        found = program.solve(solver, end - time.monotonic(), gap)
        # A program with memory asked for at some times only is bounded by less than the whole, so each bound holds.
        bound = max(bound, found.bound)
        if found.chosen is None or problem.is_feasible(found.chosen):
            return Choices(found.chosen, found.cost, bound)
        if time.monotonic() > end:
            return Choices(None, math.inf, bound)
        usage = problem.usage_of(found.chosen)
        program.refuse(found.chosen, _peaks(usage - problem.capacity, usage > problem.capacity, _MORE))


def _peaks(amounts: Numbers, where: npt.NDArray[np.bool_], most: int) -> Integers:
    """Times with the largest amounts, one of each of so many stretches of those that are asked about."""
    times = np.flatnonzero(where)
    parts = np.array_split(times, min(most, len(times))) if len(times) else []
    return np.array([part[amounts[part].argmax()] for part in parts], np.int64)


class _ChoiceProgram:
    """Columns are choices, then pairs of choices; pairs with equal costs are one."""

    def __init__(self, problem: SelectionProblem) -> None:
        self.problem = problem
        self.starts = np.cumsum([0, *map(len, problem.costs)])[:-1]
        self.first_pair = self.num_columns = sum(map(len, problem.costs))
        self.cost, self.constant = [np.concatenate([np.zeros(0), *problem.costs])], 0.0
        self.limited: set[int] = set()
        """Times at which memory is asked for."""
        self.rows: list[Integers] = []
        self.columns: list[Integers] = []
        self.values: list[Numbers] = []
        self.low: list[float] = []
        self.high: list[float] = []
        for start, costs in zip(self.starts, problem.costs, strict=True):
            self._row(1.0, 1.0, start + np.flatnonzero(np.isfinite(costs)))
        for node, others in enumerate(problem.neighbours):
            for other, table in others.items():
                if node < other:
                    self._pair(self.starts[node], self.starts[other], table)
        # Least sizes are off the room (`room`): of a buffer that always takes the same nothing is left to ask.
        varied = [b for b, usage in enumerate(problem.usages) if usage.max() > usage.min()]
        self.live = problem.intervals[varied]
        self.cells = [self.starts[problem.owners[b]] + np.arange(len(problem.usages[b])) for b in varied]
        self.usages = [problem.usages[b] - problem.usages[b].min() for b in varied]
        self.room = problem.capacity - problem.over_time(np.array([usage.min() for usage in problem.usages]))

    def limit_memory(self, times: Integers) -> None:
        """Rows for what is live then, each in parts of the room that there is."""
        self.limited.update(times.tolist())
        for moment in times.tolist():
            live = np.flatnonzero((self.live[:, 0] <= moment) & (moment < self.live[:, 1]))
            usage = np.zeros(self.first_pair)
            for buffer in live.tolist():
                usage[self.cells[buffer]] += self.usages[buffer]
            # What buffers take at least may fill the memory, or more: then there is no room to divide by.
            columns, room = np.flatnonzero(usage), max(float(self.room[moment]), 1.0)
            self._row(-np.inf, float(self.room[moment]) / room, columns, usage[columns] / room)

    def refuse(self, chosen: Integers, times: Integers) -> None:
        """Choices that do not fit then."""
        asked = np.isin(times, list(self.limited))
        self.limit_memory(times[~asked])
        # Solvers keep a row to some 1e-6, by which memory may still be broken: the same row would not change that.
        for moment in times[asked].tolist():
            self._forbid(chosen, moment)

    def _forbid(self, chosen: Integers, moment: int) -> None:
        """Choices together that are live then."""
        begin, end = self.problem.intervals.T
        nodes = np.unique(self.problem.owners[(begin <= moment) & (moment < end)])
        self._row(-np.inf, len(nodes) - 1.0, self.starts[nodes] + chosen[nodes])

    def solve(self, solver: Solver, seconds: float, gap: float) -> Choices:
        """With all rows so far."""
        from scipy.sparse import csr_array

        cost = np.concatenate(self.cost)
        allowed = np.isfinite(cost)
        # No solver takes a cost of inf: columns of forbidden choices are 0 at most instead (`IntegerProgram.most`).
        cost[~allowed] = 0.0
        # HiGHS ends 1e-6 from the optimum whatever gap it is given, and costs are seconds.  Of a set cover with costs
        # up to 1e-6 it called an answer proven that was 18 % too dear.
        scale = float(cost.max(initial=0.0)) / 1e6 or 1.0
        places = np.concatenate(self.rows), np.concatenate(self.columns)
        table = csr_array((np.concatenate(self.values), places), shape=(len(self.low), len(cost)))
        is_whole = np.arange(len(cost)) < self.first_pair
        limits = np.array(self.low), np.array(self.high)
        program = IntegerProgram(cost / scale, allowed.astype(float), is_whole, table, *limits)
        found = solver(program, max(seconds, 0.1), gap)
        bound = found.bound * scale + self.constant
        if found.columns is None:
            return Choices(None, math.inf, bound)
        # Whole numbers come back to within a solver's tolerance: 1 may be 0.999999.
        chosen = np.array([int(part.argmax()) for part in np.split(found.columns[: self.first_pair], self.starts[1:])])
        return Choices(chosen, self.problem.cost_of(chosen), bound)

    def _row(self, low: float, high: float, columns: Integers, values: Numbers | float = 1.0) -> None:
        self.rows.append(np.full(len(columns), len(self.low)))
        self.columns.append(columns)
        self.values.append(np.broadcast_to(np.asarray(values, float), len(columns)))
        self.low.append(low)
        self.high.append(high)

    def _pair(self, first: int, second: int, table: Numbers) -> None:
        """Choices at one end with equal costs at all of the other end are one row of the table."""
        rows, of_row = np.unique(table, axis=0, return_inverse=True)
        columns, of_column = np.unique(rows, axis=1, return_inverse=True)
        if len(rows) == 1 and columns.shape[1] == 1:
            self.constant += float(columns[0, 0])
            return
        cells = np.argwhere(np.isfinite(columns))
        numbers = self.num_columns + np.arange(len(cells))
        self.num_columns += len(cells)
        self.cost.append(columns[cells[:, 0], cells[:, 1]])
        # NumPy 2.0.0 gives inverses as many dims as the table has, later versions one: hence `ravel`.
        for start, groups, axis in ((first, of_row.ravel(), 0), (second, of_column.ravel(), 1)):
            for group in range(columns.shape[axis]):
                ends, own = start + np.flatnonzero(groups == group), numbers[cells[:, axis] == group]
                self._row(0.0, 0.0, np.concatenate([ends, own]), np.repeat([1.0, -1.0], [len(ends), len(own)]))
