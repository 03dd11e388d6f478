"""What moves on a grid of axes cost, and what they must cost at least.

Floor: reshard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hlosharding.cost import Machine, collective_time
from hlosharding.ir import Shape
from hlosharding.reshard.axis_plans.common_grid import Axes, Grid
from hlosharding.reshard.axis_plans.moves import AxisProblem, Move, State
from hlosharding.reshard.layout import Dims, Table
from hlosharding.reshard.matching import taken_from
from hlosharding.reshard.objectives import combined, least_seconds
from hlosharding.reshard.steps import exchange_seconds
from hlosharding.spmd import Groups


class MovePrices:
    """Mean bytes received, or seconds, of moves of one array on one machine; remembered."""

    def __init__(self, problem: AxisProblem, shape: Shape, machine: Machine, objective: str) -> None:
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
        """Cost of a move."""
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
        """What any path between two states costs at least."""
        low, high = self._box(last)
        wanted = np.maximum(high - low, 0).prod(axis=1)
        sums = self.problem.grid.product(first.partial)
        if sums > 1:
            groups = self.problem.grid.product(self.problem.grid.manual_axes)
            elements = wanted.mean() + math.prod(self.problem.sizes) * groups * (sums - 2) / len(wanted)
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


def working_tile(problem: AxisProblem, move: Move) -> Dims:
    """Local sizes that the collective of a move sees, padding included."""
    ways = [problem.grid.product(axes) for axes in move.before.dims]
    padded = map(max, move.before.padded, move.after.padded)
    return tuple(size // w for size, w in zip(padded, ways, strict=True))


def permute_sources(grid: Grid, before: State, after: State) -> Table:
    """[device]: whose tile it takes.  Devices that hold what they want keep it, the rest pair up within each tile."""
    have = grid.position(tuple(a for axes in (grid.manual_axes, *before.dims) for a in axes))
    want = grid.position(tuple(a for axes in (grid.manual_axes, *after.dims) for a in axes))
    return taken_from(have, want)
