"""Choices that are made when at most two others are: nodes without memory and with one or two neighbours, one by one.

Floor: search.  Dynamic programming along chains and trees of a problem (Bertele and Brioschi 1972): a node between two
others becomes an edge between them that costs what its best choice does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hlosharding.search.choices.problem import Integers, Numbers, SelectionProblem

_MOST_NEIGHBOURS = 2
"""With three, what is left would be no pair any more."""
_MOST_COMPARED = 1 << 24
"""Sums that one elimination makes: 256 choices between two nodes of as many."""


@dataclass(frozen=True, eq=False)
class Eliminated:
    """A problem of the nodes that are left, and the best choices of the others."""

    problem: SelectionProblem
    kept: tuple[int, ...]
    """[node that is left]: its number in the whole."""
    best: tuple[tuple[int, tuple[int, ...], Integers], ...]
    """In the order in which they went: a node, its neighbours then, and its best choice for each of theirs."""

    def expand(self, chosen: Integers) -> Integers:
        """The choices of all."""
        found = np.zeros(len(self.kept) + len(self.best), np.int64)
        found[list(self.kept)] = chosen
        # Whoever went last comes first: neighbours that a node had when it went may have gone after it.
        for node, neighbours, best in reversed(self.best):
            found[node] = best[tuple(found[list(neighbours)])]
        return found


def eliminate_between(problem: SelectionProblem) -> Eliminated:
    """The problem without nodes that own no buffers, where memory may run out, and have one or two neighbours: an
    optimum is one of the whole.

    A chain of three becomes one node:

    >>> none, equal = np.zeros(0, int), np.array([[0.0, 9.0], [9.0, 0.0]])
    >>> costs = np.array([5.0, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 2.0])
    >>> pairs, live = np.array([[0, 1], [1, 2]]), np.zeros((0, 2), int)
    >>> chain = SelectionProblem(costs, pairs, (equal, equal), none, live, (), none)
    >>> left = eliminate_between(chain)
    >>> left.problem.costs, left.expand(np.array([1]))
    ((array([6., 4.]),), array([1, 1, 1]))
    """
    run = _Elimination(problem)
    run.run()
    kept = sorted(run.costs)
    number = {node: n for n, node in enumerate(kept)}
    tables = {(number[a], number[b]): table for a in kept for b, table in run.tables[a].items() if a < b}
    # Those of nodes that went are live only when memory cannot run out (`_find_limited`): nothing is lost with them.
    buffers = [buffer for buffer, owner in enumerate(problem.owners.tolist()) if owner in number]
    left = problem.of_nodes(number, (run.costs[node] for node in kept), tables, buffers, problem.capacity)
    return Eliminated(left, tuple(kept), tuple(run.best))


def _find_limited(problem: SelectionProblem) -> set[int]:
    """Nodes that own buffers at times at which memory may run out."""
    is_limited = problem.over_life(problem.tight.astype(float)) > 0
    return set(problem.owners[is_limited].tolist())


class _Elimination:
    def __init__(self, problem: SelectionProblem) -> None:
        self.costs = dict(enumerate(problem.costs))
        self.tables = {node: dict(others) for node, others in enumerate(problem.neighbours)}
        self.fixed = _find_limited(problem)
        self.best: list[tuple[int, tuple[int, ...], Integers]] = []

    def run(self) -> None:
        """As long as there is a node to leave out, those with the fewest neighbours first."""
        waiting = sorted(self.costs, key=lambda node: len(self.tables[node]))
        while waiting:
            again = list[int]()
            for node in waiting:
                if node in self.costs and self._may_go(node):
                    again += self.tables[node]
                    self._eliminate(node)
            # Only a neighbour of one that went may have fewer neighbours now; all others are as they were.
            waiting = sorted(set(again) & set(self.costs), key=lambda node: len(self.tables[node]))

    def _may_go(self, node: int) -> bool:
        others = self.tables[node]
        # Without a neighbour there is nobody to whose costs its own could be added: a problem has no constant.
        if node in self.fixed or not 1 <= len(others) <= _MOST_NEIGHBOURS:
            return False
        return math.prod(len(self.costs[each]) for each in (node, *others)) <= _MOST_COMPARED

    def _eliminate(self, node: int) -> None:
        others = tuple(self.tables.pop(node))
        own = self.costs.pop(node)
        tables = [self.tables[other].pop(node).T for other in others]
        total = own[:, None] + tables[0]
        if len(others) == 1:
            self.costs[others[0]] = self.costs[others[0]] + total.min(0)
        else:
            total = total[:, :, None] + tables[1][:, None, :]
            self._join(others[0], others[1], total.min(0))
        self.best.append((node, others, total.argmin(0)))

    def _join(self, first: int, second: int, table: Numbers) -> None:
        for a, b, costs in ((first, second, table), (second, first, table.T)):
            known = self.tables[a].get(b)
            self.tables[a][b] = costs if known is None else known + costs
