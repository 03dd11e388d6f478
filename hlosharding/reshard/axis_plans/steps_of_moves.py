"""From a path of moves on a grid of axes, which knows axes, to steps, which know devices.

Floor: reshard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlosharding.ir import Shape
from hlosharding.reshard.axis_plans.common_grid import Grid
from hlosharding.reshard.axis_plans.moves import AxisProblem, Move, State
from hlosharding.reshard.axis_plans.prices import MovePrices, permute_sources, working_tile
from hlosharding.reshard.layout import Dims
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


def steps_of(problem: AxisProblem, moves: Sequence[Move], prices: MovePrices, reduce_kind: str) -> tuple[Step, ...]:
    """The steps of a path."""
    return tuple(step for move in _fused(moves) for step in _steps(problem, move, prices, reduce_kind))


def _fused(moves: Sequence[Move]) -> list[Move]:
    """Gathers of one dim that follow each other become one over the product group."""
    out: list[Move] = []
    for move in moves:
        last = out[-1] if out else None
        if last is not None and move.kind == last.kind == "all-gather" and move.dim == last.dim:
            out[-1] = last._replace(after=move.after, axes=(*move.axes, *last.axes))
        elif last is not None and move.kind == last.kind == "slice":
            out[-1] = last._replace(after=move.after, axes=())
        else:
            out.append(move)
    return out


def _steps(problem: AxisProblem, move: Move, prices: MovePrices, reduce_kind: str) -> Iterator[Step]:
    tile = working_tile(problem, move)
    if tile != problem.tile(move.before):
        yield Pad(tile)
    step = _collective_step(problem, move, prices, reduce_kind)
    yield step
    end = problem.tile(move.after)
    if step.result(Shape.array("u8", tile)).dims != end:
        yield Slice(end)


def _collective_step(problem: AxisProblem, move: Move, prices: MovePrices, reduce_kind: str) -> Step:
    if move.kind == "slice":
        return _slice(problem, move)
    if move.kind == "permute":
        return Permute(_pairs(problem.grid, move.before, move.after))
    if move.kind == "all-to-all":
        return _exchange(problem, move, prices)
    groups = prices.groups(move.axes)
    if move.kind == "all-gather":
        return AllGather(move.dim, groups)
    if move.kind == "all-reduce":
        return AllReduce(groups, reduce_kind)
    return ReduceScatter(move.dim, groups, reduce_kind)


def _pairs(grid: Grid, before: State, after: State) -> Pairs:
    """(source, target) for every target, itself where nothing moves."""
    return tuple(zip(permute_sources(grid, before, after).tolist(), range(grid.num_devices), strict=True))


def _slice(problem: AxisProblem, move: Move) -> Step:
    sizes = problem.tile(move.after)
    starts: list[Dims] = []
    for before, after, size in zip(move.before.dims, move.after.dims, sizes, strict=True):
        position = problem.grid.position(after[len(before) :])
        starts.append(tuple((position * size).tolist()))
    return DynamicSlice(tuple(starts), sizes)


def _exchange(problem: AxisProblem, move: Move, prices: MovePrices) -> Step:
    number = {axis: i for i, axis in enumerate(move.axes)}
    split: list[Dims] = []
    join: list[Dims] = []
    for before, after in zip(move.before.dims, move.after.dims, strict=True):
        given = tuple(number[a] for a in before if a in number)
        split.append(() if given else tuple(number[a] for a in after if a in number))
        join.append(given)
    ways = tuple(problem.grid.ways[a] for a in move.axes)
    return AllToAll(ways, tuple(split), tuple(join), prices.groups(move.axes))
