"""Axis plans: the paths that the search finds on the common grid of source and target, as steps with prices.

Floor: reshard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hlosharding.ir import Shape
from hlosharding.reshard.axis_plans.common_grid import AxisGrid, common_grid
from hlosharding.reshard.axis_plans.moves import AxisProblem, Move, State, block_of, problem_of, tile_of, working_tile
from hlosharding.reshard.axis_plans.prices import MovePrices, permute_sources
from hlosharding.reshard.axis_plans.search import cheapest_path
from hlosharding.reshard.layout import Dims
from hlosharding.reshard.request import PlannedSteps, Reshard
from hlosharding.reshard.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    DynamicSlice,
    Pad,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class AxisSearch:
    """How to search a grid: what to minimise, and below which cost."""

    objective: str
    limit: float = math.inf
    wide: tuple[bool, ...] = (False, True)
    """May axes go where neither source nor target has them?  One run each."""
    is_narrowing: bool = False
    """Must each run find something cheaper than the one before?"""


def axis_plans(reshard: Reshard, searches: Iterable[AxisSearch], padded: Dims | None = None) -> Iterator[PlannedSteps]:
    """What the searches find, until a plan is good enough; nothing where source and target have no common grid.

    With `padded` each dim is padded to that, and tiles may be cut unevenly.
    """
    axes = _blocked(reshard, padded)
    if axes is None:
        return
    for search in searches:
        for found in _found(reshard, axes, search):
            yield found
            if reshard.is_good_enough(found):
                return


def have_grid(reshard: Reshard, source: HloSharding, target: HloSharding) -> bool:
    """Are there axes in which two shardings of the array can both be written?"""
    return common_grid(source, target, reshard.shape.rank, reshard.num_devices) is not None


@dataclass(frozen=True, slots=True)
class _Blocked:
    """A problem that counts blocks of elements: one for all sizes that are cut alike."""

    problem: AxisProblem
    block: Dims


def _blocked(reshard: Reshard, padded: Dims | None) -> _Blocked | None:
    dims = reshard.shape.dims
    grid = common_grid(reshard.source, reshard.target, len(dims), reshard.num_devices)
    if grid is None:
        return None
    if padded is None:
        block = block_of(grid, dims)
        return _Blocked(problem_of(grid, tuple(size // unit for size, unit in zip(dims, block, strict=True))), block)
    return _Blocked(problem_of(grid, dims, padded), (1,) * len(dims))


def _found(reshard: Reshard, axes: _Blocked, search: AxisSearch) -> Iterator[PlannedSteps]:
    problem, limit = axes.problem, search.limit
    prices = MovePrices(problem, reshard.shape, math.prod(axes.block), reshard.machine, search.objective)
    for wide in search.wide:
        path = cheapest_path(problem, prices, wide=wide, limit=limit)
        if path is not None:
            cost, moves = path
            # Without partial sums no move reduces anything, whatever the kind.
            yield reshard.price(steps_of(problem.grid, moves, axes.block, reshard.reduce_kind or "add"))
            limit = cost if search.is_narrowing else limit


# ---- from a path of moves on a grid of axes, which knows axes, to steps, which know devices


def steps_of(grid: AxisGrid, moves: Sequence[Move], block: Dims, reduce_kind: str) -> tuple[Step, ...]:
    """The steps of a path, whose sizes count blocks of elements."""
    scaled = _fused(moves) if max(block, default=1) == 1 else [_scaled(move, block) for move in _fused(moves)]
    return tuple(step for move in scaled for step in _steps(grid, move, reduce_kind))


def _scaled(move: Move, block: Dims) -> Move:
    before, after = (
        state._replace(padded=tuple(size * unit for size, unit in zip(state.padded, block, strict=True)))
        for state in (move.before, move.after)
    )
    return move._replace(before=before, after=after)


def _fused(moves: Sequence[Move]) -> list[Move]:
    """Gathers of one dim that follow each other become one over the product group."""
    out: list[Move] = []
    for move in moves:
        last = out[-1] if out else None
        if last is not None and move.kind == last.kind == "all-gather" and move.dim == last.dim:
            # Axes are gathered from the minor one on: those of the later gather are major.
            out[-1] = last._replace(after=move.after, axes=(*move.axes, *last.axes))
        elif last is not None and move.kind == last.kind == "slice":
            # `_slice` looks at the states alone.
            out[-1] = last._replace(after=move.after, axes=())
        else:
            out.append(move)
    return out


def _steps(grid: AxisGrid, move: Move, reduce_kind: str) -> Iterator[Step]:
    tile = working_tile(grid, move)
    if tile != tile_of(grid, move.before):
        yield Pad(tile)
    step = _collective_step(grid, move, reduce_kind)
    yield step
    end = tile_of(grid, move.after)
    if step.result(Shape.array("u8", tile)).dims != end:
        yield Slice(end)


def _collective_step(grid: AxisGrid, move: Move, reduce_kind: str) -> Step:
    if move.kind == "slice":
        return _slice(grid, move)
    if move.kind == "permute":
        return Permute(_pairs(grid, move.before, move.after))
    if move.kind == "all-to-all":
        return _exchange(grid, move)
    groups = grid.groups(move.axes)
    if move.kind == "all-gather":
        return AllGather(groups, move.dim)
    if move.kind == "all-reduce":
        return AllReduce(groups, reduce_kind)
    return ReduceScatter(groups, move.dim, reduce_kind)


def _pairs(grid: AxisGrid, before: State, after: State) -> Pairs:
    """(source, target) for every target, itself where nothing moves."""
    sources = permute_sources(grid, before.dims, after.dims)
    return tuple(zip(sources.tolist(), range(grid.num_devices), strict=True))


def _slice(grid: AxisGrid, move: Move) -> Step:
    sizes = tile_of(grid, move.after)
    starts: list[Dims] = []
    for before, after, size in zip(move.before.dims, move.after.dims, sizes, strict=True):
        position = grid.position(after[len(before) :])
        starts.append(tuple((position * size).tolist()))
    return DynamicSlice(tuple(starts), sizes)


def _exchange(grid: AxisGrid, move: Move) -> Step:
    number = {axis: i for i, axis in enumerate(move.axes)}
    split: list[Dims] = []
    join: list[Dims] = []
    for before, after in zip(move.before.dims, move.after.dims, strict=True):
        given = tuple(number[a] for a in before if a in number)
        split.append(() if given else tuple(number[a] for a in after if a in number))
        join.append(given)
    ways = tuple(grid.sizes[a] for a in move.axes)
    return AllToAll(grid.groups(move.axes), ways, tuple(split), tuple(join))
