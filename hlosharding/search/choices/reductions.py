"""Choices that follow another: where a forbidden pair leaves one choice for each, two nodes are one.

Floor: search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlosharding.search.choices.dominance import undominated
from hlosharding.search.choices.problem import Integers, Numbers, SelectionProblem, edges_of, split_table


@dataclass(frozen=True, eq=False)
class Reduced:
    """A problem of fewer nodes, and what its choices mean for those of the whole."""

    problem: SelectionProblem
    leaders: Integers
    """[node of the whole]: the node that it follows."""
    meaning: tuple[Integers, ...]
    """[node of the whole][choice of that node]: its choice."""

    def expand(self, chosen: Integers) -> Integers:
        """The choices of all."""
        pairs = zip(self.meaning, chosen[self.leaders].tolist(), strict=True)
        return np.array([meaning[choice] for meaning, choice in pairs], np.int64)


def leave_out_dominated(problem: SelectionProblem) -> Reduced:
    """The problem of those choices that must be made: an optimum of it is one of the whole.

    >>> costs, none = (np.array([1.0, 2.0]), np.array([5.0, 3.0])), np.zeros(0, int)
    >>> pair = np.array([[0.0, 2.0], [1.0, 2.0]])
    >>> whole = SelectionProblem(costs, np.array([[0, 1]]), (pair,), none, np.zeros((0, 2), int), (), none)
    >>> reduced = leave_out_dominated(whole)
    >>> reduced.problem.costs, reduced.expand(np.array([0, 0]))
    ((array([1.]), array([5.])), array([0, 0]))
    """
    return _merged(problem, list(range(problem.num_nodes)), undominated(problem))


def merge_followers(problem: SelectionProblem) -> Reduced:
    """Forbidden choices left out, and nodes that follow others merged with them.

    >>> pair = np.array([[0.0, np.inf], [np.inf, 2.0]])
    >>> none = np.zeros(0, int)
    >>> costs = np.array([1.0, 2.0]), np.array([3.0, 0.0])
    >>> whole = SelectionProblem(costs, np.array([[0, 1]]), (pair,), none, np.zeros((0, 2), int), (), none)
    >>> followed = merge_followers(whole)
    >>> followed.problem.costs, followed.expand(np.array([1]))
    ((array([4., 4.]),), array([1, 1]))
    """
    leader = list(range(problem.num_nodes))
    meaning: list[Integers] = [np.flatnonzero(np.isfinite(costs)) for costs in problem.costs]
    """[node][choice of its leader]; choices that are forbidden are left out."""
    members = [[node] for node in leader]
    for (first, second), table in zip(problem.pairs.tolist(), problem.pair_costs, strict=True):
        if np.isfinite(table).all():
            continue
        a, b = leader[first], leader[second]
        allowed = np.isfinite(table[np.ix_(meaning[first], meaning[second])])
        if a == b:
            keep = np.flatnonzero(allowed.diagonal())
            for node in members[a]:
                meaning[node] = meaning[node][keep]
        elif (allowed.sum(axis=0) <= 1).all() and (allowed.sum(axis=1) <= 1).all():
            # The smaller group is told its new leader: so each node is told a logarithmic number of times.
            if len(members[a]) < len(members[b]):
                a, b, allowed = b, a, allowed.T
            rows, columns = np.nonzero(allowed)
            # Where all rows are left they are so in their order, and the larger group need not be gone through.
            if len(rows) < len(allowed):
                for node in members[a]:
                    meaning[node] = meaning[node][rows]
            for node in members[b]:
                meaning[node], leader[node] = meaning[node][columns], a
            members[a] += members[b]
            members[b] = []
    return _merged(problem, leader, meaning)


def _merged(problem: SelectionProblem, leader: list[int], meaning: list[Integers]) -> Reduced:
    kept = sorted(set(leader))
    number = {node: n for n, node in enumerate(kept)}
    leaders = np.array([number[node] for node in leader], np.int64)
    costs: list[Numbers] = [np.zeros(len(meaning[node])) for node in kept]
    for node, group in enumerate(leaders.tolist()):
        costs[group] = costs[group] + problem.costs[node][meaning[node]]
    pairs: dict[tuple[int, int], Numbers] = {}
    for (first, second), table in zip(problem.pairs.tolist(), problem.pair_costs, strict=True):
        a, b = int(leaders[first]), int(leaders[second])
        if a == b:
            # Paired, not crossed: both ends follow one choice.
            costs[a] = costs[a] + table[meaning[first], meaning[second]]
            continue
        table = table[np.ix_(meaning[first], meaning[second])]
        key, table = ((a, b), table) if a < b else ((b, a), table.T)
        pairs[key] = pairs[key] + table if key in pairs else table
    for a, b in [*pairs]:
        apart = split_table(pairs[a, b])
        if apart is not None:
            del pairs[a, b]
            costs[a], costs[b] = costs[a] + apart[0], costs[b] + apart[1]
    usages = tuple(usage[meaning[node]] for usage, node in zip(problem.usages, problem.owners, strict=True))
    owners, live = leaders[problem.owners], problem.intervals
    found = SelectionProblem(tuple(costs), *edges_of(pairs), owners, live, usages, problem.capacity)
    return Reduced(found, leaders, tuple(meaning))
