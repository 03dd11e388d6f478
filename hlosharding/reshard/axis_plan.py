"""From moves on a grid of axes to steps, and what moves cost.

Floor: reshard.  The bridge between `search`, which knows axes, and `steps`, which know devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from hlosharding.cost import Machine, collective_time
from hlosharding.ir import Shape
from hlosharding.reshard.axis_search import Move, Problem, State
from hlosharding.reshard.common_grid import Axes, Grid
from hlosharding.reshard.layout import Table
from hlosharding.reshard.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Dims,
    DynamicSlice,
    Groups,
    Pad,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    exchange_seconds,
)

# What a second weighs in bytes.  "bytes": it decides ties alone; "time": it alone decides; "balanced": a collective of
# a few microseconds weighs as much as some tens of kilobytes, so that small arrays travel in few steps and large ones
# in few bytes.
OBJECTIVES = {"bytes": 1e-3, "balanced": 1e10, "time": 1e18}


def combined(objective: str, nbytes: float, seconds: float) -> float:
    """The one figure to minimise."""
    return nbytes + seconds * OBJECTIVES[objective]


class MovePrices:
    """Mean bytes received, or seconds, of moves of one array on one machine; remembered."""

    def __init__(self, problem: Problem, shape: Shape, machine: Machine, objective: str) -> None:
        self.problem, self.shape, self.machine, self.objective = problem, shape, machine, objective
        self._groups: dict[Axes, Groups] = {}
        self._known: dict[tuple[str, int, Axes], float] = {}
        self._boxes: dict[State, tuple[Table, Table]] = {}
        self._sizes = np.array(problem.sizes, np.int64)
        self._shape = problem.grid.num_devices, len(problem.sizes)
        self._kernel = combined(objective, 0.0, machine.launch) if objective == "balanced" else 0.0
        """Of the first slice (those that follow are cut with it), and of padding before a reduction."""

    def groups(self, axes: Axes) -> Groups:
        """Device groups along axes."""
        if axes not in self._groups:
            self._groups[axes] = self.problem.grid.groups(axes)
        return self._groups[axes]

    def move(self, move: Move) -> float:
        if move.kind == "slice":
            return self._kernel if move.before.dims == self.problem.source.dims else 0.0
        nbytes = self.shape.with_dims(working_tile(self.problem, move)).byte_size
        if move.kind == "permute":
            return self._permute(move, nbytes)
        key = (move.kind, nbytes, move.axes)
        if key not in self._known:
            self._known[key] = self._collective(move, nbytes)
        is_padded = move.kind == "reduce-scatter" and move.before.padded != move.after.padded
        return self._known[key] + (self._kernel if is_padded else 0.0)

    def least(self, first: State, last: State) -> float:
        low, high = self._box(last)
        wanted = np.maximum(high - low, 0).prod(axis=1)
        addends = self.problem.grid.product(first.addends)
        if addends > 1:
            worlds = self.problem.grid.product(self.problem.grid.worlds)
            elements = wanted.mean() + math.prod(self.problem.sizes) * worlds * (addends - 2) / len(wanted)
        else:
            have_low, have_high = self._box(first)
            both = np.maximum(np.minimum(high, have_high) - np.maximum(low, have_low), 0).prod(axis=1)
            elements = (wanted - both).mean()
        nbytes = float(elements) * self.shape.byte_size / self.shape.size
        return combined(self.objective, nbytes, least_seconds(nbytes, self.machine))

    def _box(self, state: State) -> tuple[Table, Table]:
        """[device, dim] start and end of the real elements of each device's tile."""
        if state not in self._boxes:
            tile, start = np.array(self.problem.tile(state), np.int64), np.empty(self._shape, np.int64)
            for dim, axes in enumerate(state.dims):
                start[:, dim] = self.problem.grid.position(axes)
            start *= tile
            self._boxes[state] = np.minimum(start, self._sizes), np.minimum(start + tile, self._sizes)
        return self._boxes[state]

    def _collective(self, move: Move, nbytes: int) -> float:
        size = self.problem.grid.product(move.axes)
        groups = self.groups(move.axes)
        if move.kind == "all-gather":
            return combined(self.objective, (size - 1) * nbytes, self._seconds(move.kind, size * nbytes, size, groups))
        times = 2 if move.kind == "all-reduce" else 1
        if move.kind == "all-to-all":
            seconds = exchange_seconds(nbytes, groups, self.machine)
        else:
            seconds = self._seconds(move.kind, nbytes, size, groups)
        return combined(self.objective, times * (size - 1) / size * nbytes, seconds)

    def _permute(self, move: Move, nbytes: int) -> float:
        sources = permute_sources(self.problem.grid, move.before, move.after)
        devices = np.arange(len(sources))
        moved = devices[sources != devices]
        if len(moved) and self.machine.topology == "switch":
            # The slowest pair decides, and there are two kinds: within a node and between nodes.
            per_node = self.machine.devices_per_node
            far = moved[sources[moved] // per_node != moved // per_node]
            moved_far = far[:1] if len(far) else moved[:1]
        else:
            moved_far = moved
        pairs = tuple(zip(sources[moved_far].tolist(), moved_far.tolist(), strict=True))
        seconds = self._seconds("collective-permute", nbytes, 2, pairs) if pairs else 0.0
        return combined(self.objective, nbytes * len(moved) / len(devices), seconds)

    def _seconds(self, kind: str, nbytes: float, size: int, groups: Sequence[Sequence[int]]) -> float:
        return collective_time(kind, nbytes, size, groups, self.machine)


def least_seconds(nbytes: float, machine: Machine) -> float:
    """No collective by which a device receives `nbytes` is faster."""
    links = max(1, 2 * len(machine.torus))
    return machine.collective_launch + nbytes / (links * machine.inside.bandwidth) if nbytes > 0 else 0.0


def working_tile(problem: Problem, move: Move) -> Dims:
    """Local sizes that the collective of a move sees, padding included."""
    ways = [problem.grid.product(axes) for axes in move.before.dims]
    padded = map(max, move.before.padded, move.after.padded)
    return tuple(size // w for size, w in zip(padded, ways, strict=True))


def permute_pairs(grid: Grid, before: State, after: State) -> Pairs:
    """(source, target) for every target, itself where nothing moves."""
    return tuple(zip(permute_sources(grid, before, after).tolist(), range(grid.num_devices), strict=True))


def permute_sources(grid: Grid, before: State, after: State) -> Table:
    """[device]: whose tile it takes.  Devices that hold what they want keep it, the rest pair up within each tile."""
    have = grid.position(tuple(a for axes in (grid.worlds, *before.dims) for a in axes))
    want = grid.position(tuple(a for axes in (grid.worlds, *after.dims) for a in axes))
    return paired(have, want)


def paired(have: Table, want: Table) -> Table:
    """[device]: whose tile it takes, where devices hold the tiles of numbers `have` and are to hold those of `want`.

    >>> paired(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])).tolist()
    [0, 2, 1, 3]
    """
    devices = np.arange(len(have))
    moving = devices[have != want]
    staying = devices[have == want]
    sources = moving[np.argsort(have[moving], kind="stable")]
    targets = moving[np.argsort(want[moving], kind="stable")]
    source_of = np.empty_like(devices)
    source_of[staying] = staying
    source_of[targets] = sources
    return source_of


def steps_of(problem: Problem, moves: Sequence[Move], prices: MovePrices, reduce_kind: str) -> tuple[Step, ...]:
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


def _steps(problem: Problem, move: Move, prices: MovePrices, reduce_kind: str) -> Iterator[Step]:
    tile = working_tile(problem, move)
    if tile != problem.tile(move.before):
        yield Pad(tile)
    step = _collective_step(problem, move, prices, reduce_kind)
    yield step
    end = problem.tile(move.after)
    if step.result(Shape.array("u8", tile)).dims != end:
        yield Slice(end)


def _collective_step(problem: Problem, move: Move, prices: MovePrices, reduce_kind: str) -> Step:
    if move.kind == "slice":
        return _slice(problem, move)
    if move.kind == "permute":
        return Permute(permute_pairs(problem.grid, move.before, move.after))
    if move.kind == "all-to-all":
        return _exchange(problem, move, prices)
    groups = prices.groups(move.axes)
    if move.kind == "all-gather":
        return AllGather(move.dim, groups)
    if move.kind == "all-reduce":
        return AllReduce(groups, reduce_kind)
    return ReduceScatter(move.dim, groups, reduce_kind)


def _slice(problem: Problem, move: Move) -> Step:
    sizes = problem.tile(move.after)
    starts: list[Dims] = []
    for before, after, size in zip(move.before.dims, move.after.dims, sizes, strict=True):
        position = problem.grid.position(after[len(before) :])
        starts.append(tuple((position * size).tolist()))
    return DynamicSlice(tuple(starts), sizes)


def _exchange(problem: Problem, move: Move, prices: MovePrices) -> Step:
    number = {axis: i for i, axis in enumerate(move.axes)}
    split: list[Dims] = []
    join: list[Dims] = []
    for before, after in zip(move.before.dims, move.after.dims, strict=True):
        leaving = tuple(number[a] for a in before if a in number)
        split.append(() if leaving else tuple(number[a] for a in after if a in number))
        join.append(leaving)
    ways = tuple(problem.grid.ways[a] for a in move.axes)
    return AllToAll(ways, tuple(split), tuple(join), prices.groups(move.axes))


def kernels_of(steps: Sequence[Step]) -> int:
    """Kernels that cut what is sent or has come, or pad it for a reduction, if no neighbour does that by the way.

    An exchange counts its own.
    """
    padded = sum(isinstance(a, Pad) and isinstance(b, ReduceScatter) for a, b in pairwise(steps))
    return padded + sum(isinstance(step, DynamicSlice) for step in steps)


def cost_of(steps: Sequence[Step], local: Shape, num_devices: int, machine: Machine) -> tuple[float, float, int]:
    """(mean bytes received, seconds, most bytes alive) of steps that start from local arrays `local`."""
    mean, seconds, peak = 0.0, 0.0, local.byte_size
    for step in steps:
        mean += float(step.received_bytes(local, num_devices).mean())
        seconds += step.seconds(local, machine)
        peak = max(peak, step.buffer_bytes(local))
        local = step.result(local)
    return mean, seconds, math.ceil(peak)
