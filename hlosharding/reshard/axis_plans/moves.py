"""States of a value on a grid of device axes, and the moves from one state to the next.

Floor: reshard.  Knows axes and padded sizes; nothing of devices, steps or prices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, permutations, product
from typing import Any, Literal, NamedTuple

from hlosharding.once import remembered
from hlosharding.reshard.axis_plans.common_grid import Axes, AxisGrid
from hlosharding.reshard.layout import Dims

_MOST_AT_ONCE = 4
"""Axes of one all-to-all; moves grow with subsets.  With two one plan takes 1.02 of the time; eight change none."""

MoveKind = Literal["slice", "all-gather", "all-to-all", "reduce-scatter", "all-reduce", "permute"]
End = Literal["source", "target"]
"""From which end of the plan a search looks."""


# A tuple, as `Move` is, not a dataclass: states are keys of every front and price of a search.
class State(NamedTuple):
    """A value on the grid: axes per dim, the padded size of each dim, and the axes over which it still is partial."""

    dims: tuple[Axes, ...]
    padded: Dims
    """Tile times tiles; of a dim that is not split: its true size."""
    partial: Axes = ()


class Move(NamedTuple):
    """One move, seen from the source's side even if it was found from the target's."""

    kind: MoveKind
    before: State
    after: State
    axes: Axes
    """Over which devices talk, in member order; of a slice: the axes that are added."""
    dim: int = -1


Candidate = tuple[Move, int]
"""A move, and how many elements the local array has that its collective sees."""


@dataclass(frozen=True, eq=False)
class AxisProblem:
    """The grid with sizes: what all searches share.  What was found once is remembered."""

    grid: AxisGrid
    sizes: Dims
    source: State
    target: State
    may_cut_unevenly: bool = False
    """May tiles be cut unevenly, each padded at its end?  What a device then holds is not what a sharding would say."""

    @cached_property
    def _twins(self) -> list[int | None]:
        """[dim]: the nearest dim before it that is just like it: of one size, and split by neither end."""
        rows = list(zip(self.sizes, self.source.dims, self.target.dims, self.target.padded, strict=True))
        last: dict[Any, int] = {}
        twins: list[int | None] = []
        for dim, row in enumerate(rows):
            twins.append(None if row[1] or row[2] else last.get(row))
            last[row] = dim
        return twins

    def is_open(self, dims: tuple[Axes, ...], dim: int) -> bool:
        """May a dim get axes?  Of dims that are just alike, and not split, the first one stands for all."""
        twin = self._twins[dim]
        return twin is None or bool(dims[dim] or dims[twin])

    def padded_size(self, state: State, dim: int, axes: Axes) -> int | None:
        """Of `dim` once split by `axes`, where it is split by a prefix of them now; None: tiles would not be even."""
        ways, now = self.grid.product(axes), state.dims[dim]
        if now:
            if state.padded[dim] % ways == 0:
                return state.padded[dim]
            # In one go: parts of uneven parts lie elsewhere.
            is_whole = axes == self.target.dims[dim] and self.source.dims[dim][: len(now)] == now
            return -(-state.padded[dim] // ways) * ways if self.may_cut_unevenly and is_whole else None
        # A permute joins only states that are padded alike: so a dim is padded as the end has it that it will meet.
        for known in (self.target, self.source):
            if known.dims[dim] and known.padded[dim] % ways == 0:
                return known.padded[dim]
        return -(-self.sizes[dim] // ways) * ways

    def opposite(self, end: End) -> State:
        """Where a search from one end wants to arrive."""
        return self.target if end == "source" else self.source

    @remembered
    def candidates(self, state: State, end: End, wide: bool) -> tuple[Candidate, ...]:
        """The moves from a state, each once."""
        moves = {(move.kind, move.before, move.after): move for move in moves_from(self, state, end, wide)}
        return tuple(map(self.candidate, moves.values()))

    def candidate(self, move: Move) -> Candidate:
        """The move with the elements of the local array that its collective sees, padding included."""
        padded = map(max, move.before.padded, move.after.padded)
        return move, math.prod(padded) // math.prod(map(self.grid.product, move.before.dims))

    @remembered
    def tile(self, state: State) -> Dims:
        """Local sizes."""
        return tile_of(self.grid, state)


@lru_cache(maxsize=4096)
def problem_of(grid: AxisGrid, sizes: Dims, padded: Dims | None = None) -> AxisProblem:
    """The search problem of an array with global `sizes`.  Remembered.

    With `padded` the target is padded to that, and tiles may be cut unevenly.
    """

    def state(dims: tuple[Axes, ...], partial: Axes) -> State:
        ways = [grid.product(axes) for axes in dims]
        return State(dims, tuple(-(-size // w) * w for size, w in zip(sizes, ways, strict=True)), partial)

    first, last = state(grid.source, tuple(sorted(grid.partial_axes))), state(grid.target, ())
    if padded is None:
        return AxisProblem(grid, sizes, first, last)
    return AxisProblem(grid, sizes, first, last._replace(padded=padded), may_cut_unevenly=True)


def block_of(grid: AxisGrid, sizes: Dims) -> Dims:
    """Blocks of elements that no tile edge cuts in any state: moves of the blocks are moves of the array.

    Only a dim that all devices together cut evenly has such blocks; of another an element is a block.
    """
    devices = grid.product(tuple(range(len(grid.sizes))))
    return tuple(max(1, size // devices) if size % devices == 0 else 1 for size in sizes)


def tile_of(grid: AxisGrid, state: State) -> Dims:
    """Local sizes."""
    product_of = grid.product
    return tuple([size // product_of(axes) for size, axes in zip(state.padded, state.dims, strict=True)])


def working_tile(grid: AxisGrid, move: Move) -> Dims:
    """Local sizes that the collective of a move sees, padding included."""
    if move.before.padded == move.after.padded:
        return tile_of(grid, move.before)
    padded = tuple(map(max, move.before.padded, move.after.padded))
    return tile_of(grid, move.before._replace(padded=padded))


def moves_from(problem: AxisProblem, state: State, end: End, wide: bool) -> Iterator[Move]:
    """Moves from `state` towards the other end; from the target's end reversed, so that they lead to `state`.

    `wide` also puts axes where neither source nor target has them; else every axis goes where it is wanted.
    """
    goal = problem.opposite(end).dims
    yield from _slices_or_gathers(problem, state, goal, end, wide)
    yield from _all_to_alls(problem, state, goal, end, wide)
    if end == "source" and state.partial:
        yield from _reductions(problem, state, goal, wide)


def direct_move(problem: AxisProblem) -> Candidate | None:
    """The one collective that leads from the source to the target, where it needs no search; else None.

    An all-reduce, a reduce-scatter or an all-gather.
    """
    source, target = problem.source, problem.target
    unlike = [dim for dim, axes in enumerate(source.dims) if axes != target.dims[dim]]
    if not unlike and source.partial:
        return problem.candidate(Move("all-reduce", source, target, source.partial))
    if len(unlike) != 1:
        return None
    [dim] = unlike
    have, want = source.dims[dim], target.dims[dim]
    if source.partial:
        more = want[len(have) :]
        # `partial` is sorted; the axes of a dim stand in the order of their tiles.
        meets = want[: len(have)] == have and sorted(more) == list(source.partial)
        scattered = _appended(problem, source, dim, more) if meets else None
        is_there = scattered is not None and scattered._replace(partial=()) == target
        return problem.candidate(Move("reduce-scatter", source, target, more, dim)) if is_there else None
    more = have[len(want) :]
    is_there = have[: len(want)] == want and _appended(problem, target, dim, more) == source
    return problem.candidate(Move("all-gather", source, target, more, dim)) if is_there else None


# Slices, and backwards all-gathers


def _slices_or_gathers(
    problem: AxisProblem, state: State, goal: tuple[Axes, ...], end: End, wide: bool
) -> Iterator[Move]:
    """Axes over which the value is replicated are appended to a dim: a slice; from the target's end, an all-gather."""
    # Along axes of partial sums devices differ, though these are in no dim.
    free = set(problem.grid.replicated(state.dims)) - set(state.partial)
    for dim, axes in _appendable(problem, state.dims, goal, free & _wanted(problem, end, wide), wide):
        new = _appended(problem, state, dim, axes)
        if new is None:
            continue
        if end == "source":
            yield Move("slice", state, new, axes, dim)
        else:
            yield Move("all-gather", new, state, axes, dim)


def _wanted(problem: AxisProblem, end: End, wide: bool) -> set[int]:
    """Axes that a slice (from the target's end: an all-gather) may be for."""
    wanted = {a for axes in problem.opposite(end).dims for a in axes}
    if end == "target":
        # A reduce-scatter splits by these: to gather them again is the other half of an all-reduce.
        wanted |= set(problem.source.partial)
    if wide and problem.source.partial:
        # Copies may share the work of a reduction, each reducing a part, and gather afterwards.
        here = problem.source if end == "source" else problem.target
        wanted |= set(problem.grid.replicated(here.dims))
    return wanted


def _appendable(
    problem: AxisProblem, dims: tuple[Axes, ...], goal: tuple[Axes, ...], free: set[int], wide: bool
) -> Iterator[tuple[int, Axes]]:
    """(dim, axes) to append: along the goal's own order; if `wide` any free axes anywhere."""
    for dim, (now, end) in enumerate(zip(dims, goal, strict=True)):
        if end[: len(now)] == now:
            for stop in range(len(now) + 1, len(end) + 1):
                # Axes are appended in their order: behind one that is not free none comes into its place.
                if end[stop - 1] not in free:
                    break
                yield dim, end[len(now) : stop]
    if wide:
        open_dims = [dim for dim in range(len(dims)) if problem.is_open(dims, dim)]
        yield from ((dim, axes) for n in (1, 2) for axes in permutations(sorted(free), n) for dim in open_dims)


def _appended(problem: AxisProblem, state: State, dim: int, axes: Axes) -> State | None:
    padded = problem.padded_size(state, dim, (*state.dims[dim], *axes))
    if padded is None:
        return None
    return State(_put(state.dims, dim, (*state.dims[dim], *axes)), _put(state.padded, dim, padded), state.partial)


# All-to-alls


class Exchange(NamedTuple):
    """What one all-to-all does to the axes of each dim."""

    gives: Dims
    """[dim]: how many of its minor axes it gives up."""
    gets: tuple[Axes, ...]
    """[dim]: axes that it gets, behind those that it keeps."""


def _all_to_alls(problem: AxisProblem, state: State, goal: tuple[Axes, ...], end: End, wide: bool) -> Iterator[Move]:
    """Minor axes of some dims move behind those of others: an all-to-all, which reversed is one, too."""
    seen: set[State] = set()
    for exchange in exchanges(state.dims, goal, wide):
        if not all(problem.is_open(state.dims, dim) for dim, new in enumerate(exchange.gets) if new):
            continue
        new = _exchanged(problem, state, exchange)
        if new is None or new in seen:
            continue
        seen.add(new)
        before, after = (state, new) if end == "source" else (new, state)
        axes = tuple(a for axes, number in zip(state.dims, exchange.gives, strict=True) for a in _last(axes, number))
        yield Move("all-to-all", before, after, axes)


@lru_cache(maxsize=1 << 12)
def exchanges(dims: tuple[Axes, ...], goal: tuple[Axes, ...], wide: bool) -> tuple[Exchange, ...]:
    """The all-to-alls that bring axes where the goal has them, or if `wide` anywhere else.  Remembered.

    Dim 0 is split by the axes 0 and 1, dim 1 by axis 2; the goal has axis 1 behind axis 2 in dim 1.  One exchange does:
    dim 0 gives up its last axis, dim 1 gets it.

    >>> exchanges(((0, 1), (2,)), ((0,), (2, 1)), wide=False)
    (Exchange(gives=(1, 0), gets=((), (1,))),)

    If the goal were ((0,), (1, 2)), axis 1 would come to stand behind axis 2, where the goal does not want it: only a
    wide search tries that, as it tries every other dim for the last axes of one dim.

    >>> exchanges(((0, 1), (2,)), ((0,), (1, 2)), wide=False)
    ()
    """
    home = {a: dim for dim, axes in enumerate(goal) for a in axes}
    # Per dim, what it may give up: its last axes, where only a wide search takes those that are at home nowhere else.
    ends = [[_last(axes, number) for number in range(len(axes) + 1)] for axes in dims]
    if not wide:
        ends = [[end for end in row if all(home.get(a, dim) != dim for a in end)] for dim, row in enumerate(ends)]
    found: list[Exchange] = []
    for given in product(*ends):
        gives, moving = tuple(map(len, given)), tuple(a for end in given for a in end)
        if 0 < len(moving) <= _MOST_AT_ONCE:
            found += _home(dims, goal, gives, moving, home, wide)
            found += _anywhere(dims, gives, moving) if wide else ()
    return tuple(found)


def _home(
    dims: tuple[Axes, ...], goal: tuple[Axes, ...], gives: Dims, moving: Axes, home: dict[int, int], wide: bool
) -> Iterator[Exchange]:
    """All axes that are given up go to the dims in which the goal has them, if those give up none themselves."""
    if not all(a in home and not gives[home[a]] for a in moving):
        return
    gets = tuple([tuple([a for a in axes if a in moving]) for axes in goal])
    # A dim that gets axes gives up none: what it has then are its axes and the new ones.
    is_in_place = all(
        axes[: len(now) + len(new)] == (*now, *new) for now, axes, new in zip(dims, goal, gets, strict=True) if new
    )
    if wide or is_in_place:
        yield Exchange(gives, gets)


def _anywhere(dims: tuple[Axes, ...], gives: Dims, moving: Axes) -> Iterator[Exchange]:
    """All axes that one dim gives up go to another dim, whichever."""
    if sum(1 for number in gives if number) == 1:
        for dim, number in enumerate(gives):
            if not number:
                yield Exchange(gives, _put(((),) * len(dims), dim, moving))


def _last(axes: Axes, number: int) -> Axes:
    return axes[len(axes) - number :]


def _exchanged(problem: AxisProblem, state: State, exchange: Exchange) -> State | None:
    dims, padded = list(state.dims), list(state.padded)
    for dim, (number, new) in enumerate(zip(*exchange, strict=True)):
        dims[dim] = (*state.dims[dim][: len(state.dims[dim]) - number], *new)
        if new:
            size = problem.padded_size(state, dim, dims[dim])
            if size is None:
                return None
            padded[dim] = size
        # A dim that is whole again has no padding.
        elif number and not dims[dim]:
            padded[dim] = problem.sizes[dim]
    return State(tuple(dims), tuple(padded), state.partial)


# Reductions


def _reductions(problem: AxisProblem, state: State, goal: tuple[Axes, ...], wide: bool) -> Iterator[Move]:
    """Partial sums meet: scattered over a dim, or for all."""
    split = {a for axes in goal for a in axes}
    # Over axes by which the target splits a dim the sum is had for half the bytes, scattered: so the others may go
    # alone.
    in_no_dim = tuple(a for a in state.partial if a not in split)
    for axes in {state.partial, in_no_dim} - {()}:
        yield Move("all-reduce", state, State(state.dims, state.padded, _without(state.partial, axes)), axes)
    for dim, axes in _appendable(problem, state.dims, goal, set(state.partial), False):
        yield from _scattered(problem, state, dim, axes)
    if wide:
        open_dims = [dim for dim in range(len(state.dims)) if problem.is_open(state.dims, dim)]
        for size in range(1, len(state.partial) + 1):
            for axes, dim in product(combinations(state.partial, size), open_dims):
                yield from _scattered(problem, state, dim, axes)


def _scattered(problem: AxisProblem, state: State, dim: int, axes: Axes) -> Iterator[Move]:
    new = _appended(problem, state, dim, axes)
    if new is not None:
        yield Move("reduce-scatter", state, State(new.dims, new.padded, _without(state.partial, axes)), axes, dim)


def _without(axes: Axes, gone: Axes) -> Axes:
    return tuple(a for a in axes if a not in gone)


def _put(values: tuple[Any, ...], place: int, value: object) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
