"""The cheapest path over a grid of axes, found from both ends at once.

Floor: reshard.  Asks `moves` where a state leads and `MovePrices` what a move costs; makes no steps.

Rink, Paszke, Vytiniotis and Schmid 2021 (arXiv 2112.01075): any redistribution is slices, then moves that keep the size
of the tile, then gathers; one permute suffices.  So from the source we search slices (free), reductions and
all-to-alls; from the target, backwards, gathers and all-to-alls; a permute joins two states with tiles of one shape.
No tile on the path is larger than both the source's and the target's (but for the rounding of a dim that is cut anew).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import count

from hlosharding.reshard.axis_plans.moves import AxisProblem, End, Move, State, direct_move
from hlosharding.reshard.axis_plans.prices import MovePrices
from hlosharding.reshard.layout import Dims

_MOST_STATES = 40
"""That are looked at from each end; half and double give the same plans."""
_NEAR = 1.0001
"""So near to the least cost there is nothing to gain."""

Path = tuple[float, tuple[Move, ...]]
"""(cost, moves)"""


def cheapest_path(problem: AxisProblem, prices: MovePrices, *, wide: bool, limit: float = math.inf) -> Path | None:
    """The cheapest path found; None where the grid offers none that costs less than `limit`.

    `wide` also tries axes where neither source nor target has them; else every axis goes where it is wanted.
    """
    direct = direct_move(problem)
    if direct is not None:
        cost = prices.move(direct)
        if cost < limit and cost <= _NEAR * prices.least(problem.source, problem.target):
            return cost, (direct[0],)
    return _ShortestPath(problem, prices, wide, limit).run()


class _ShortestPath:
    """Dijkstra from the source and, over reversed moves, from the target."""

    def __init__(self, problem: AxisProblem, prices: MovePrices, wide: bool, limit: float) -> None:
        self.problem, self.prices, self.wide, self.limit = problem, prices, wide, limit
        self.least = prices.least(problem.source, problem.target)
        self.fronts: dict[End, _Front] = {"source": _Front(problem.source), "target": _Front(problem.target)}
        self.best: tuple[float, State, Move | None, State] | None = None

    def run(self) -> Path | None:
        # The ends themselves may be one permute apart, or one state.
        for end, front in self.fronts.items():
            self._join(end, front.start)
        while not self._done():
            end = self._next_end()
            if end is None:
                break
            self._expand(end)
        return self._path()

    @property
    def _cost_to_beat(self) -> float:
        return self.best[0] if self.best is not None else self.limit

    def _done(self) -> bool:
        # Not the sum, as for fronts that walk all edges: a permute joins two states that are both found, so a path is
        # unknown if one of them lies beyond its own front.
        nearest = min(front.least for front in self.fronts.values())
        return self._cost_to_beat <= _NEAR * self.least or nearest >= self._cost_to_beat

    def _next_end(self) -> End | None:
        fronts = self.fronts.items()
        unfinished: list[End] = [end for end, front in fronts if front.heap and front.popped < _MOST_STATES]
        return min(unfinished, key=lambda end: self.fronts[end].least, default=None)

    def _expand(self, end: End) -> None:
        front = self.fronts[end]
        cost, state = front.pop()
        # Pushed before a cheaper way to it was found: the heap keeps both.
        if cost > front.cost[state]:
            return
        rest = (state, self.problem.target) if end == "source" else (self.problem.source, state)
        if cost + self.prices.least(*rest) >= self._cost_to_beat:
            return
        known, is_first, least = front.cost, end == "source", self.prices.least
        for candidate in self.problem.candidates(state, end, self.wide):
            move = candidate[0]
            new = move.after if is_first else move.before
            total, to_beat = cost + self.prices.move(candidate), self._cost_to_beat
            if total >= to_beat or total >= known.get(new, math.inf):
                continue
            left = least(new, self.problem.target) if is_first else least(self.problem.source, new)
            if total + left < to_beat:
                front.push(new, total, move)
                self._join(end, new)

    def _join(self, end: End, state: State) -> None:
        """Meet the states found from the other end: the same one, or one that a permute reaches."""
        # From the target's end all states are whole.
        if state.partial:
            return
        front, other = self.fronts[end], self.fronts["target" if end == "source" else "source"]
        for there in other.alike(self._key(state)):
            base = front.cost[state] + other.cost[there]
            if base >= self._cost_to_beat:
                continue
            first, last = (state, there) if end == "source" else (there, state)
            move, price = self.prices.permute(first, last) if first != last else (None, 0.0)
            total = base + price
            if total < self._cost_to_beat:
                self.best = (total, first, move, last)
        front.file(self._key(state), state)

    def _key(self, state: State) -> tuple[Dims, Dims]:
        return self.problem.tile(state), state.padded

    def _path(self) -> Path | None:
        if self.best is None:
            return None
        cost, first, permute, last = self.best
        middle = [permute] if permute is not None else []
        return cost, (*reversed(list(self.fronts["source"].trace(first))), *middle, *self.fronts["target"].trace(last))


class _Front:
    """One Dijkstra: costs, the moves that reached each state, and what is open."""

    def __init__(self, start: State) -> None:
        self.cost: dict[State, float] = {start: 0.0}
        self.reached: dict[State, Move] = {}
        self.start = start
        self.popped = 0
        # Of equal costs the state that was found first comes first, not the one whose axes have the smaller numbers.
        self._ticket = count()
        self.heap: list[tuple[float, int, State]] = [(0.0, next(self._ticket), start)]
        self._filed: dict[tuple[Dims, Dims], list[State]] = {}

    @property
    def least(self) -> float:
        return self.heap[0][0] if self.heap else math.inf

    def pop(self) -> tuple[float, State]:
        self.popped += 1
        cost, _, state = heapq.heappop(self.heap)
        return cost, state

    def push(self, state: State, cost: float, move: Move) -> None:
        self.cost[state] = cost
        self.reached[state] = move
        heapq.heappush(self.heap, (cost, next(self._ticket), state))

    def file(self, key: tuple[Dims, Dims], state: State) -> None:
        filed = self._filed.setdefault(key, [])
        if state not in filed:
            filed.append(state)

    def alike(self, key: tuple[Dims, Dims]) -> list[State]:
        return self._filed.get(key, [])

    def trace(self, state: State) -> Iterator[Move]:
        """Moves between `state` and the start, nearest to `state` first."""
        while state != self.start:
            move = self.reached[state]
            yield move
            state = move.before if move.after == state else move.after
