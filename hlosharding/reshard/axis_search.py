"""The axis plan: the cheapest way over a grid of axes, found from both ends at once.

Floor: reshard.  Knows states and moves on a `Grid`, and asks `Prices` what a move costs; makes no steps.

Rink, Paszke, Vytiniotis and Schmid 2021 (arXiv 2112.01075): any redistribution is slices, then moves that keep the size
of the tile, then gathers; one permute suffices.  So from the source we search slices (free), reductions and
all-to-alls; from the target, backwards, gathers and all-to-alls; a permute joins two states with tiles of one shape.
No tile on the way is larger than both the source's and the target's (but for the rounding of a dim that is cut anew).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, count, permutations, product
from typing import Any, NamedTuple, Protocol

from hlosharding.reshard.common_grid import Axes, Grid

Dims = tuple[int, ...]

_MOST_STATES = 40
_MOST_AT_ONCE = 4
_NEAR = 1.0001


class State(NamedTuple):
    """A value on the grid: axes per dim, the padded size of each dim, and the axes whose addends are still to meet."""

    dims: tuple[Axes, ...]
    padded: Dims
    """Tile times tiles; of a dim that is not split: its true size."""
    addends: Axes = ()


class Move(NamedTuple):
    """One move, seen from the source's side even if it was found from the target's."""

    kind: str
    """slice, all-gather, all-to-all, reduce-scatter, all-reduce or permute"""
    before: State
    after: State
    axes: Axes
    """Over which devices talk, in member order; of a slice: the axes that are added."""
    dim: int = -1


@dataclass(frozen=True, slots=True)
class Problem:
    """The grid with sizes: what both searches share."""

    grid: Grid
    sizes: Dims
    source: State
    target: State
    is_nested: bool = False
    """May tiles be cut unevenly, each padded at its end?  What a device then holds is not what a sharding would say."""

    def tile(self, state: State) -> Dims:
        """Local sizes."""
        product_of = self.grid.product
        return tuple(size // product_of(axes) for size, axes in zip(state.padded, state.dims, strict=True))

    def placed(self, state: State, dim: int, axes: Axes) -> int | None:
        """The padded size of `dim` once split by `axes`, where it is split by a prefix of them now; None: not even."""
        ways, now = self.grid.product(axes), state.dims[dim]
        if now:
            if state.padded[dim] % ways == 0:
                return state.padded[dim]
            # In one go: parts of uneven parts lie elsewhere.
            is_whole = axes == self.target.dims[dim] and self.source.dims[dim][: len(now)] == now
            return -(-state.padded[dim] // ways) * ways if self.is_nested and is_whole else None
        known = (s.padded[dim] for s in (self.target, self.source) if s.dims[dim])
        return next((size for size in known if size % ways == 0), -(-self.sizes[dim] // ways) * ways)


def problem_of(grid: Grid, sizes: Dims) -> Problem:
    """The search problem of an array with global `sizes`."""

    def state(dims: tuple[Axes, ...], addends: Axes) -> State:
        ways = [grid.product(axes) for axes in dims]
        padded = tuple(-(-size // w) * w for size, w in zip(sizes, ways, strict=True))
        return State(dims, padded, addends)

    return Problem(grid, sizes, state(grid.source, tuple(sorted(grid.addends))), state(grid.target, ()))


class Prices(Protocol):
    """What moves cost; the search minimises the sum."""

    def move(self, move: Move) -> float:
        """Cost of a move."""
        ...

    def least(self, first: State, last: State) -> float:
        """What any way between two states costs at least."""
        ...


Path = tuple[float, tuple[Move, ...]]


def cheapest_path(problem: Problem, prices: Prices, *, wide: bool, most: float = math.inf) -> Path | None:
    """(cost, moves) of the cheapest way found; None where the grid offers none that costs less than `most`.

    `wide` also tries axes where neither source nor target has them; else every axis goes where it is wanted.
    """
    return _Search(problem, prices, wide, most).run()


class _Search:
    """Dijkstra from the source and, over reversed moves, from the target."""

    def __init__(self, problem: Problem, prices: Prices, wide: bool, most: float) -> None:
        self.problem, self.prices, self.wide, self.most = problem, prices, wide, most
        self.least = prices.least(problem.source, problem.target)
        self.ends = _Front(problem.source), _Front(problem.target)
        self.best: tuple[float, State, Move | None, State] | None = None

    def run(self) -> Path | None:
        for side in (0, 1):
            self._join(side, (self.problem.source, self.problem.target)[side])
        while not self._done():
            side = self._next_side()
            if side is None:
                break
            self._expand(side)
        return self._path()

    @property
    def _limit(self) -> float:
        return self.best[0] if self.best is not None else self.most

    def _done(self) -> bool:
        return self._limit <= _NEAR * self.least or min(end.least for end in self.ends) >= self._limit

    def _next_side(self) -> int | None:
        open_sides = [s for s in (0, 1) if self.ends[s].heap and self.ends[s].popped < _MOST_STATES]
        return min(open_sides, key=lambda s: self.ends[s].least, default=None)

    def _expand(self, side: int) -> None:
        front = self.ends[side]
        cost, state = front.pop()
        if cost > front.cost[state]:
            return
        ends = (state, self.problem.target) if side == 0 else (self.problem.source, state)
        if cost + self.prices.least(*ends) >= self._limit:
            return
        for move in _moves(self.problem, state, side, self.wide):
            new = move.after if side == 0 else move.before
            total = cost + self.prices.move(move)
            if total < min(front.cost.get(new, math.inf), self._limit):
                front.push(new, total, move)
                self._join(side, new)

    def _join(self, side: int, state: State) -> None:
        """Meet the states of the other side: the same one, or one that a permute reaches."""
        if state.addends:
            return
        front, other = self.ends[side], self.ends[1 - side]
        for there in other.alike(self._key(state)):
            base = front.cost[state] + other.cost[there]
            if base >= self._limit:
                continue
            first, last = (state, there) if side == 0 else (there, state)
            move = None if first == last else Move("permute", first, last, ())
            total = base + (self.prices.move(move) if move is not None else 0.0)
            if total < self._limit:
                self.best = (total, first, move, last)
        front.file(self._key(state), state)

    def _key(self, state: State) -> tuple[Dims, Dims]:
        return self.problem.tile(state), state.padded

    def _path(self) -> Path | None:
        if self.best is None:
            return None
        cost, first, permute, last = self.best
        middle = [permute] if permute is not None else []
        return cost, (*reversed(list(self.ends[0].trace(first))), *middle, *self.ends[1].trace(last))


class _Front:
    """One Dijkstra: costs, the moves that reached each state, and what is open."""

    def __init__(self, start: State) -> None:
        self.cost: dict[State, float] = {start: 0.0}
        self.reached: dict[State, Move] = {}
        self.start = start
        self.popped = 0
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


def _moves(problem: Problem, state: State, side: int, wide: bool) -> Iterator[Move]:
    """Moves from `state` towards the other end; on side 1 reversed, so that they lead to `state`."""
    goal = (problem.target if side == 0 else problem.source).dims
    yield from _additions(problem, state, goal, side, wide)
    yield from _exchanges(problem, state, goal, side, wide)
    if side == 0 and state.addends:
        yield from _reductions(problem, state, goal, wide)


def _additions(problem: Problem, state: State, goal: tuple[Axes, ...], side: int, wide: bool) -> Iterator[Move]:
    """Axes over which the value is repeated are appended to a dim: a slice; backwards, an all-gather."""
    free = set(problem.grid.repeated(state.dims)) - set(state.addends)
    mine, others = (problem.source, problem.target) if side == 0 else (problem.target, problem.source)
    wanted = {a for axes in others.dims for a in axes}
    if side == 1:
        wanted |= set(problem.source.addends)
    if wide and problem.source.addends:
        # Copies may share the work of a reduction, each reducing a part, and gather afterwards.
        wanted |= set(problem.grid.repeated(mine.dims))
    free &= wanted
    for dim, axes in _appendable(state.dims, goal, free, wide):
        new = _appended(problem, state, dim, axes)
        if new is not None:
            yield Move("slice", state, new, axes, dim) if side == 0 else Move("all-gather", new, state, axes, dim)


def _appendable(
    dims: tuple[Axes, ...], goal: tuple[Axes, ...], free: set[int], wide: bool
) -> Iterator[tuple[int, Axes]]:
    """(dim, axes) to append: along the goal's own order; if `wide` any free axes anywhere."""
    for dim, (now, end) in enumerate(zip(dims, goal, strict=True)):
        if end[: len(now)] == now:
            for stop in range(len(now) + 1, len(end) + 1):
                if end[stop - 1] not in free:
                    break
                yield dim, end[len(now) : stop]
    if wide:
        for size in (1, 2):
            for axes in permutations(sorted(free), size):
                for dim in range(len(dims)):
                    yield dim, axes


def _appended(problem: Problem, state: State, dim: int, axes: Axes) -> State | None:
    padded = problem.placed(state, dim, (*state.dims[dim], *axes))
    if padded is None:
        return None
    return State(_put(state.dims, dim, (*state.dims[dim], *axes)), _put(state.padded, dim, padded), state.addends)


def _exchanges(problem: Problem, state: State, goal: tuple[Axes, ...], side: int, wide: bool) -> Iterator[Move]:
    """Minor axes of some dims move behind those of others: an all-to-all, which reversed is one, too."""
    seen: set[State] = set()
    for leaving, arrivals in _exchange_patterns(state.dims, goal, wide):
        new = _exchanged(problem, state, leaving, arrivals)
        if new is None or new in seen:
            continue
        seen.add(new)
        before, after = (state, new) if side == 0 else (new, state)
        axes = tuple(a for dim, number in enumerate(leaving) for a in _last(state.dims[dim], number))
        yield Move("all-to-all", before, after, axes)


Arrivals = tuple[Axes, ...]


@lru_cache(maxsize=1 << 12)
def _exchange_patterns(dims: tuple[Axes, ...], goal: tuple[Axes, ...], wide: bool) -> tuple[tuple[Dims, Arrivals], ...]:
    """As `_leaving`; searches of one plan ask again and again."""
    return tuple(_leaving(dims, goal, wide))


def _leaving(dims: tuple[Axes, ...], goal: tuple[Axes, ...], wide: bool) -> Iterator[tuple[Dims, Arrivals]]:
    """How many minor axes leave each dim, and what arrives at each: where the goal has them, or if `wide` anywhere."""
    home = {a: dim for dim, axes in enumerate(goal) for a in axes}
    for leaving in product(*(range(len(axes) + 1) for axes in dims)):
        if not 0 < sum(leaving) <= _MOST_AT_ONCE:
            continue
        moving = [a for axes, number in zip(dims, leaving, strict=True) for a in _last(axes, number)]
        if all(a in home and not leaving[home[a]] for a in moving):
            arrivals = tuple(tuple(a for a in end if a in moving) for end in goal)
            kept = (axes[: len(axes) - number] for axes, number in zip(dims, leaving, strict=True))
            after = [(*axes, *new) for axes, new in zip(kept, arrivals, strict=True)]
            if wide or all(end[: len(now)] == now for now, end, new in zip(after, goal, arrivals, strict=True) if new):
                yield leaving, arrivals
        if wide and sum(1 for number in leaving if number) == 1:
            for dim in range(len(dims)):
                if not leaving[dim]:
                    yield leaving, _put(((),) * len(dims), dim, tuple(moving))


def _last(axes: Axes, number: int) -> Axes:
    return axes[len(axes) - number :]


def _exchanged(problem: Problem, state: State, leaving: Dims, arrivals: Arrivals) -> State | None:
    dims, padded = list(state.dims), list(state.padded)
    for dim, number in enumerate(leaving):
        dims[dim] = (*state.dims[dim][: len(state.dims[dim]) - number], *arrivals[dim])
        if arrivals[dim]:
            size = problem.placed(state, dim, dims[dim])
            if size is None:
                return None
            padded[dim] = size
        elif number and not dims[dim]:
            padded[dim] = problem.sizes[dim]
    return State(tuple(dims), tuple(padded), state.addends)


def _reductions(problem: Problem, state: State, goal: tuple[Axes, ...], wide: bool) -> Iterator[Move]:
    """Addends meet: scattered over a dim, or for all."""
    split = {a for axes in goal for a in axes}
    stay = tuple(a for a in state.addends if a not in split)
    for axes in {state.addends, stay} - {()}:
        yield Move("all-reduce", state, State(state.dims, state.padded, _without(state.addends, axes)), axes)
    for dim, axes in _appendable(state.dims, goal, set(state.addends), False):
        yield from _scattered(problem, state, dim, axes)
    if wide:
        for size in range(1, len(state.addends) + 1):
            for axes in combinations(state.addends, size):
                for dim in range(len(state.dims)):
                    yield from _scattered(problem, state, dim, axes)


def _scattered(problem: Problem, state: State, dim: int, axes: Axes) -> Iterator[Move]:
    new = _appended(problem, state, dim, axes)
    if new is not None:
        yield Move("reduce-scatter", state, State(new.dims, new.padded, _without(state.addends, axes)), axes, dim)


def _without(axes: Axes, gone: Axes) -> Axes:
    return tuple(a for a in axes if a not in gone)


def _put(values: tuple[Any, ...], place: int, value: object) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
