"""One choice per node at the least cost: what choosing a placement of every value of a program asks.

Floor: search.  Plain numbers; knows nothing of programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """Nodes with choices; each choice has a cost, pairs of choices have costs, and a node's buffers take memory while
    they are live, as its choice says.  Costs are at least 0; `inf` forbids.

    >>> problem = SelectionProblem(
    ...     costs=(np.array([1.0, 3.0]), np.array([2.0, 2.0])),
    ...     pairs=np.array([[0, 1]]),
    ...     pair_costs=(np.array([[0.0, 5.0], [4.0, 0.0]]),),
    ...     owners=np.array([0]),
    ...     intervals=np.array([[0, 2]]),
    ...     usages=(np.array([9.0, 1.0]),),
    ...     capacity=np.full(3, 8.0),
    ... )
    >>> problem.cost_of(np.array([1, 1])), problem.is_feasible(np.array([1, 1])), problem.is_feasible(np.array([0, 0]))
    (5.0, True, False)
    """

    costs: tuple[Numbers, ...]
    """[node][choice]"""
    pairs: Integers
    """[edge]: two nodes."""
    pair_costs: tuple[Numbers, ...]
    """[edge][choice of the first, of the second]"""
    owners: Integers
    """[buffer]: its node."""
    intervals: Integers
    """[buffer]: first time at which it is live, and the first at which it is no more."""
    usages: tuple[Numbers, ...]
    """[buffer][choice of its node]: memory."""
    capacity: Numbers
    """[time]: memory that live buffers may take together."""

    @property
    def num_nodes(self) -> int:
        """How many choices there are to make."""
        return len(self.costs)

    @cached_property
    def neighbours(self) -> list[dict[int, Numbers]]:
        """[node]: by neighbour the costs of pairs, its own choice first; edges between the same two are added up."""
        found: list[dict[int, Numbers]] = [{} for _ in self.costs]
        for (first, second), costs in zip(self.pairs.tolist(), self.pair_costs, strict=True):
            for a, b, table in ((first, second, costs), (second, first, costs.T)):
                found[a][b] = found[a][b] + table if b in found[a] else table
        return found

    def cost_of(self, chosen: Integers) -> float:
        """Of one choice per node; `inf` where a pair is forbidden."""
        own = sum(costs[choice] for costs, choice in zip(self.costs, chosen.tolist(), strict=True))
        ends = chosen[self.pairs].tolist()
        return float(own + sum(costs[i, j] for costs, (i, j) in zip(self.pair_costs, ends, strict=True)))

    def usage_of(self, chosen: Integers) -> Numbers:
        """[time]: memory."""
        taken = zip(self.usages, chosen[self.owners].tolist(), strict=True)
        return self.over_time(np.array([usage[choice] for usage, choice in taken]))

    @cached_property
    def tight(self) -> npt.NDArray[np.bool_]:
        """[time]: may memory run out?"""
        return self.over_time(np.array([usage.max() for usage in self.usages])) > self.capacity

    @cached_property
    def buffers(self) -> list[list[int]]:
        """[node]: its buffers."""
        found: list[list[int]] = [[] for _ in self.costs]
        for buffer, node in enumerate(self.owners.tolist()):
            found[node].append(buffer)
        return found

    def over_time(self, amounts: Numbers, buffers: Sequence[int] | slice = slice(None)) -> Numbers:
        """[time]: what live ones of these buffers have together, of an amount of each."""
        change = np.zeros(len(self.capacity) + 1)
        # `change[...] += amounts` would count only one of several buffers that start at the same time.
        np.add.at(change, self.intervals[buffers, 0], amounts)
        np.subtract.at(change, self.intervals[buffers, 1], amounts)
        return np.cumsum(change)[:-1]

    def over_life(self, amounts: Numbers) -> Numbers:
        """[buffer]: of amounts at each time, what comes together while it is live."""
        total = np.concatenate([[0.0], np.cumsum(amounts)])
        # A difference of sums may come out a little below 0, and memory would then be paid for being taken.
        return (total[self.intervals[:, 1]] - total[self.intervals[:, 0]]).clip(0)

    def with_memory(self, costs: Iterable[Numbers], prices: Numbers) -> list[Numbers]:
        """[node][choice]: costs, and what memory takes at so much for each time."""
        found = list(costs)
        each = self.over_life(prices).tolist()
        for node, usage, price in zip(self.owners.tolist(), self.usages, each, strict=True):
            if price:
                found[node] = found[node] + usage * price
        return found

    def is_feasible(self, chosen: Integers) -> bool:
        """Does it fit at all times, to a rounding of sums?"""
        return bool((self.usage_of(chosen) <= self.capacity + 1e-9 * np.abs(self.capacity)).all())

    def part(self, nodes: Sequence[int], chosen: Integers) -> SelectionProblem:
        """The choices of these nodes alone, where all others are made."""
        number = {node: n for n, node in enumerate(nodes)}
        costs = [self.costs[node] for node in nodes]
        pairs: dict[tuple[int, int], Numbers] = {}
        for n, node in enumerate(nodes):
            for other, table in self.neighbours[node].items():
                if other not in number:
                    costs[n] = costs[n] + table[:, chosen[other]]
                elif n < number[other]:
                    pairs[n, number[other]] = table
        own = [buffer for node in nodes for buffer in self.buffers[node]]
        taken = self.over_time(np.array([self.usages[b][chosen[self.owners[b]]] for b in own]), own)
        return self.of_nodes(number, costs, pairs, own, self.capacity - self.usage_of(chosen) + taken)

    def of_nodes(
        self,
        number: Mapping[int, int],
        costs: Iterable[Numbers],
        tables: Mapping[tuple[int, int], Numbers],
        buffers: Sequence[int],
        capacity: Numbers,
    ) -> SelectionProblem:
        """Of some nodes alone, which get these numbers, with these of their buffers.  `tables`: costs of pairs by the
        new numbers of their ends."""
        owners = np.array([number[owner] for owner in self.owners[buffers].tolist()], np.int64)
        usages = tuple(self.usages[buffer] for buffer in buffers)
        return SelectionProblem(tuple(costs), *edges_of(tables), owners, self.intervals[buffers], usages, capacity)


def edges_of(tables: Mapping[tuple[int, int], Numbers]) -> tuple[Integers, tuple[Numbers, ...]]:
    """The pairs of a problem, and their costs."""
    return np.array(list(tables), np.int64).reshape(-1, 2), tuple(tables.values())


def split_table(table: Numbers) -> tuple[Numbers, Numbers] | None:
    """What each end costs by itself, where a pair costs no more than both; None where it depends on the pair.

    >>> split_table(np.array([[1.0, 3.0], [2.0, 4.0]])), split_table(np.eye(2))
    ((array([1., 2.]), array([0., 2.])), None)
    """
    if not table.size or not np.isfinite(table).all():
        return None
    rest = table - table[:, :1]
    return (table[:, 0], rest[0]) if (rest == rest[:1]).all() else None
