"""Choice problems too large for one integer program: prices of memory, choices that fit, and parts solved whole.

Floor: search.  Prices of memory rise where it runs out and fall where it is left; with each, messages say what is best.
What they say is taken as far as it fits.  Then the choices of some neighbours at a time are made anew, by an integer
program that holds all others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import count

import numpy as np

from hlosharding.search.choices.messages import Messages
from hlosharding.search.choices.problem import Integers, Numbers, SelectionProblem
from hlosharding.search.choices.whole import NOTHING, Choices, solve_whole

_CELLS = 20_000
"""Pairs of choices in the first part that is solved whole: later ones have more, or fewer, as time tells."""
_MOST_NODES = 250
_PART_SECONDS = 4.0
_SETTLING, _PATIENCE, _EVERY = 8, 5, 12
"""Rounds before prices change, without a better bound before they change less, and from one try to fit to the next."""
_PRICES_SHARE = 0.5
"""Of the time, for prices."""


def descend(problem: SelectionProblem, seconds: float, start: Choices = NOTHING, seed: int = 0) -> Choices:
    """The best choices found in so many seconds, from those that there are, and the bound that prices gave."""
    search = _Descent(problem, time.monotonic() + seconds, np.random.default_rng(seed), start)
    search.price(time.monotonic() + _PRICES_SHARE * seconds)
    while search.best is not None and search.free and time.monotonic() < search.end:
        search.solve_part()
    return Choices(search.best, search.cost, search.bound)


class _Descent:
    """The best choices so far."""

    def __init__(self, problem: SelectionProblem, end: float, random: np.random.Generator, start: Choices) -> None:
        self.problem, self.end, self.random = problem, end, random
        self.best, self.cost, self.bound = start
        self.size = 1.0
        """Of parts, beside the first one."""
        self.free = [node for node, costs in enumerate(problem.costs) if len(costs) > 1]

    def take(self, chosen: Integers) -> None:
        """Choices that fit, if they cost less."""
        cost = self.problem.cost_of(chosen)
        if cost < self.cost:
            self.best, self.cost = chosen.copy(), cost

    def price(self, end: float) -> None:
        """Prices by subgradients of the bound; what comes of them is made to fit now and then."""
        problem, messages = self.problem, Messages(self.problem)
        least = least_memory(problem)
        prices, scale = np.zeros(len(problem.capacity)), max(float(problem.capacity.max(initial=0.0)), 1.0)
        reach, since = 0.1, 0
        for rounds in count():
            if time.monotonic() > end:
                return
            target, bound = messages.round(prices)
            since = 0 if bound > self.bound else since + 1
            self.bound = max(self.bound, bound)
            if since == _PATIENCE:
                reach, since = reach * 0.7, 0
            over = np.where(problem.tight, problem.usage_of(target) - problem.capacity, 0.0) / scale
            if least is not None and rounds % _EVERY == _EVERY - 1:
                self.take(self.improve(self.fit(least if self.best is None else self.best, target)))
            if rounds >= _SETTLING:
                # A price of 0 where memory is left cannot fall: that part of the direction would shorten the step.
                moved = np.where((prices > 0) | (over > 0), over, 0.0)
                # Polyak's step, towards a value that is `reach` above the best bound: the optimum itself is not known.
                step = (self.bound - bound + reach * abs(self.bound)) / max(float(moved @ moved), 1e-12)
                prices = np.maximum(prices + step * moved / scale, 0.0)

    def fit(self, least: Integers, target: Integers) -> Integers:
        """What is aimed at, node by node, where it fits beside the least memory of those that do not follow yet."""
        chosen, problem = least.copy(), self.problem
        usage = problem.usage_of(chosen)
        # Another order each time: whoever comes first takes the memory that there is.
        for node in self.random.permutation(np.flatnonzero(chosen != target)).tolist():
            self.moves(node, chosen, int(target[node]), usage)
        return chosen

    def improve(self, chosen: Integers, passes: int = 2) -> Integers:
        """Each node's best choice that fits, where all others stay."""
        usage, neighbours = self.problem.usage_of(chosen), self.problem.neighbours
        for _ in range(passes):
            for node in self.random.permutation(self.free).tolist():
                cost = self.problem.costs[node]
                for other, table in neighbours[node].items():
                    cost = cost + table[:, chosen[other]]
                for choice in np.argsort(cost).tolist():
                    if cost[choice] >= cost[chosen[node]]:
                        break
                    if self.moves(node, chosen, choice, usage):
                        break
        return chosen

    def moves(self, node: int, chosen: Integers, new: int, usage: Numbers) -> bool:
        """To another choice, if there is memory for it."""
        problem, old = self.problem, chosen[node]
        buffers = [
            (*problem.intervals[b], problem.usages[b][new] - problem.usages[b][old]) for b in problem.buffers[node]
        ]
        for start, end, more in buffers:
            usage[start:end] += more
        if any(more > 0 and (usage[start:end] > problem.capacity[start:end]).any() for start, end, more in buffers):
            for start, end, more in buffers:
                usage[start:end] -= more
            return False
        chosen[node] = new
        return True

    def solve_part(self) -> None:
        """The choices of a node and of those around it, made anew."""
        assert self.best is not None
        nodes, start = self.around(int(self.random.choice(self.free))), time.monotonic()
        part = self.problem.part(nodes, self.best)
        found = solve_whole(part, min(_PART_SECONDS, self.end - start), gap=1e-4)
        self.size *= 1.25 if time.monotonic() - start < 0.5 * _PART_SECONDS else 0.8
        if found.chosen is not None:
            chosen = self.best.copy()
            chosen[nodes] = found.chosen
            # The room of a part is a difference of sums: what fits there may not fit in the whole, by a rounding.
            if self.problem.is_feasible(chosen):
                self.take(chosen)

    def around(self, start: int) -> list[int]:
        """Nodes by their distance, until they are many; where no more are connected, others that are live with them."""
        found, cells = dict[int, None](), 0
        waiting = [start]
        # `waiting` grows while it is gone through: neighbours of what is found are put behind it.
        for node in _endless(waiting, self.random, self.free):
            if node in found or len(self.problem.costs[node]) < 2:
                continue
            found[node] = None
            for other, table in self.problem.neighbours[node].items():
                if other in found:
                    cells += table.size
                else:
                    waiting.append(other)
            # Without the number of all that are free it would go on for ever once all are found: `_endless` has no end.
            if cells > self.size * _CELLS or len(found) >= min(self.size * _MOST_NODES, len(self.free)):
                break
        return list(found)


def _endless(waiting: list[int], random: np.random.Generator, free: list[int]) -> Iterable[int]:
    """Those that wait, first come first served; while there are none, any."""
    number = 0
    while True:
        if number == len(waiting):
            waiting.append(int(random.choice(free)))
        yield waiting[number]
        number += 1


def least_memory(problem: SelectionProblem, rounds: int = 60) -> Integers | None:
    """Choices that fit, whatever they cost: prices rise where they do not."""
    # Prices are multiplied, so those of times at which memory cannot run out stay 0.
    prices = problem.tight.astype(float)
    allowed = [np.where(np.isfinite(costs), 0.0, np.inf) for costs in problem.costs]
    for _ in range(rounds):
        burden = problem.with_memory(allowed, prices)
        chosen = np.array([int(each.argmin()) for each in burden])
        if problem.is_feasible(chosen):
            return chosen
        over = problem.usage_of(chosen) / np.maximum(problem.capacity, 1.0)
        prices *= np.exp(8 * np.clip(over - 1, -0.02, 0.5))
    return None
