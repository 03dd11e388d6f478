"""Choices by messages along edges, where memory has a price: sequential tree-reweighted message passing (TRW-S).

Floor: search.  Kolmogorov, "Convergent tree-reweighted message passing for energy minimization" (PAMI 2006).  Branches
that hang on a node are folded into it first: their best choices are known for each of its own.
"""

from __future__ import annotations

import numpy as np

from hlosharding.search.choices.problem import Integers, Numbers, SelectionProblem, split_table

_FORBIDDEN = 1e17
"""Of pairs, where sums must stay finite."""
_Edges = dict[int, list[tuple[int, Numbers]]]
"""By node its neighbours on one side, with the costs of pairs."""


class Messages:
    """Messages of all edges, which get better with each round."""

    def __init__(self, problem: SelectionProblem) -> None:
        self.problem = problem
        self.costs = [np.minimum(costs, _FORBIDDEN) for costs in problem.costs]
        self.tables: list[dict[int, Numbers]] = [{} for _ in self.costs]
        """[node]: by neighbour the costs of pairs, the neighbour's choice first."""
        for node, others in enumerate(problem.neighbours):
            for other, table in others.items():
                if node < other:
                    self._connect(node, other, np.minimum(table, _FORBIDDEN))
        self.branches = self._peel()
        """(node, the one on which it hangs), outermost first."""
        hanging = {node for node, _ in self.branches}
        self.core = [node for node in range(problem.num_nodes) if node not in hanging]
        self.before, self.after = (
            {
                n: [(m, self.tables[n][m]) for m in sorted(self.tables[n]) if m not in hanging and (m > n) == later]
                for n in self.core
            }
            for later in (False, True)
        )
        self.incoming: dict[tuple[int, int], Numbers] = {
            (m, n): np.zeros(len(self.costs[n])) for n in self.core for m, _ in (*self.before[n], *self.after[n])
        }

    def _connect(self, node: int, other: int, table: Numbers) -> None:
        """An edge, unless what it costs is what its ends cost apart."""
        apart = split_table(table)
        if apart is None:
            self.tables[node][other] = table.T
            self.tables[other][node] = table
        else:
            self.costs[node], self.costs[other] = self.costs[node] + apart[0], self.costs[other] + apart[1]

    def _peel(self) -> list[tuple[int, int]]:
        degree = [len(others) for others in self.tables]
        stack = [node for node, count in enumerate(degree) if count == 1]
        found: list[tuple[int, int]] = []
        gone: set[int] = set()
        while stack:
            node = stack.pop()
            # The last two of a tree hang on each other: once one is gone the other has nothing to hang on, and stays.
            if degree[node] != 1 or node in gone:
                continue
            (above,) = (other for other in self.tables[node] if other not in gone)
            gone.add(node)
            found.append((node, above))
            degree[above] -= 1
            if degree[above] == 1:
                stack.append(above)
        return found

    def round(self, prices: Numbers) -> tuple[Integers, float]:
        """Choices, and a bound below which none is, of all costs and of memory at its prices beyond what there is."""
        local = self.problem.with_memory(self.costs, prices)
        for node, above in self.branches:
            local[above] = local[above] + (self.tables[node][above] + local[node]).min(axis=1)
        chosen = np.zeros(len(local), np.int64)
        self._pass(local, self.core, self.before, self.after, chosen)
        bound = self._pass(local, self.core[::-1], self.after, self.before, None)
        # Innermost first: a branch can choose when the node on which it hangs has.
        for node, above in reversed(self.branches):
            chosen[node] = (local[node] + self.tables[above][node][:, chosen[above]]).argmin()
        return chosen, bound - float(prices @ self.problem.capacity)

    def _pass(
        self, local: list[Numbers], order: list[int], behind: _Edges, ahead: _Edges, chosen: Integers | None
    ) -> float:
        """Messages to those ahead, node by node; their least are taken off and added up."""
        bound, incoming = 0.0, self.incoming
        for node in order:
            back, front = behind[node], ahead[node]
            hat = local[node]
            for other, _ in front:
                hat = hat + incoming[other, node]
            if chosen is not None:
                # Those behind have chosen, so costs of these choices count in place of messages from there.
                own = hat
                for other, _ in back:
                    own = own + self.tables[other][node][:, chosen[other]]
                chosen[node] = own.argmin()
            for other, _ in back:
                hat = hat + incoming[other, node]
            least = hat.min()
            bound += least
            if front:
                # As many monotonic chains go through a node as it has neighbours on the side with more.  Each takes its
                # share of the node's costs, so that at the same prices the bound never falls (Kolmogorov).
                hat = (hat - least) / max(len(back), len(front))
                for other, table in front:
                    message = (table + (hat - incoming[other, node])).min(axis=1)
                    least = message.min()
                    bound += least
                    incoming[node, other] = message - least
        return float(bound)
