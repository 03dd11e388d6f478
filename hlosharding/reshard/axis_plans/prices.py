"""What moves on a grid of axes cost, and what they must cost at least.

Floor: reshard.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hlosharding.cost import GroupPlacement, Machine, group_placement, permute_placement, placement_time
from hlosharding.ir import Shape
from hlosharding.once import remembered
from hlosharding.reshard.axis_plans.common_grid import Axes, AxisGrid
from hlosharding.reshard.axis_plans.moves import AxisProblem, Candidate, Move, State
from hlosharding.reshard.layout import Table, received_elements
from hlosharding.reshard.objectives import OBJECTIVES, least_seconds
from hlosharding.reshard.steps import transposes_seconds
from hlosharding.reshard.subgroups import taken_from
from hlosharding.spmd import bytes_received


class MovePrices:
    """Mean bytes received, or seconds, of moves of one array on one machine; remembered.

    The problem counts in blocks (see `moves.block_of`), so many elements each.
    """

    def __init__(self, problem: AxisProblem, shape: Shape, block: int, machine: Machine, objective: str) -> None:
        self.problem, self.machine = problem, machine
        self._bits = block * shape.bits
        self._block_bytes = block * shape.byte_size / shape.size
        self._distances = distances_of(problem)
        self._second = OBJECTIVES[objective]

    def move(self, candidate: Candidate) -> float:
        """Cost of a move."""
        move, blocks = candidate
        kind, _, _, axes, _ = move
        if kind == "slice":
            return 0.0
        if kind == "permute":
            return self._permute(move, self._nbytes(blocks))
        return self._collective(kind, axes, self._nbytes(blocks))

    def permute(self, before: State, after: State) -> tuple[Move, float]:
        """The permute between two states with tiles of one shape, and its cost."""
        move = Move("permute", before, after, ())
        return move, self.move((move, math.prod(self.problem.tile(before))))

    def least(self, first: State, last: State) -> float:
        """What any path between two states costs at least."""
        blocks, reach = self._distances.between(first, last)
        nbytes = blocks * self._block_bytes
        return nbytes + self._second * least_seconds(nbytes, self.machine, reach)

    def _nbytes(self, blocks: int) -> int:
        # In bits, for elements may be narrower than a byte: a tile is rounded up once, as a whole.
        return -(-blocks * self._bits // 8)

    @remembered
    def _collective(self, kind: str, axes: Axes, nbytes: int) -> float:
        size = self.problem.grid.product(axes)
        where = _placement(self.problem.grid, axes, self.machine)
        whole = size * nbytes if kind == "all-gather" else nbytes
        seconds = placement_time(kind, whole, where, self.machine)[0]
        # As `AllToAll.seconds` counts them: a path costs what its steps will.
        if kind == "all-to-all":
            seconds += transposes_seconds(nbytes, self.machine)
        return bytes_received(kind, whole, size) + self._second * seconds

    def _permute(self, move: Move, nbytes: int) -> float:
        share, where = _permuted(self.problem.grid, move.before.dims, move.after.dims, self.machine)
        seconds = placement_time("collective-permute", nbytes, where, self.machine)[0] if share else 0.0
        return nbytes * share + self._second * seconds


@lru_cache(maxsize=4096)
def _placement(grid: AxisGrid, axes: Axes, machine: Machine) -> GroupPlacement:
    return group_placement(grid.groups(axes), machine)


class _Permuted(NamedTuple):
    """What a permute costs, but for its bytes."""

    share: float
    """Of the devices that receive anything."""
    where: GroupPlacement
    """Of the slowest pair."""


@lru_cache(maxsize=16384)
def _permuted(grid: AxisGrid, before: tuple[Axes, ...], after: tuple[Axes, ...], machine: Machine) -> _Permuted:
    sources = permute_sources(grid, before, after)
    moved = np.flatnonzero(sources != np.arange(len(sources)))
    slowest = moved
    if machine.topology == "switch":
        # There are two kinds of pairs: within a node and between nodes.
        nodes = _nodes(machine, len(sources))
        far = moved[nodes[sources[moved]] != nodes[moved]]
        slowest = far[:1] if len(far) else moved[:1]
    pairs = tuple(zip(sources[slowest].tolist(), slowest.tolist(), strict=True))
    return _Permuted(len(moved) / len(sources), permute_placement(pairs, machine))


@lru_cache(maxsize=64)
def _nodes(machine: Machine, devices: int) -> Table:
    """[device]: the node that holds it."""
    return np.array([machine.node_of(device) for device in range(devices)])


@lru_cache(maxsize=16384)
def permute_sources(grid: AxisGrid, before: tuple[Axes, ...], after: tuple[Axes, ...]) -> Table:
    """[device]: whose tile it takes.  Devices that hold what they want keep it, the rest pair up within each tile."""
    have = grid.position(tuple(a for axes in (grid.manual_axes, *before) for a in axes))
    want = grid.position(tuple(a for axes in (grid.manual_axes, *after) for a in axes))
    return taken_from(have, want)


# ---- how far apart two states on a grid of axes are: what devices must receive at least, and from how many others
#
# Knows axes and sizes; nothing of bytes or seconds.


_Split = tuple[int, Axes, int]
"""(dim, the axes that split it, its padded size)"""


class Distances:
    """Between the states of one problem; each is found once."""

    def __init__(self, problem: AxisProblem) -> None:
        self.problem = problem

    @remembered
    def between(self, first: State, last: State) -> tuple[float, int]:
        """What any path from one state to another brings: elements, mean over devices; from how many devices."""
        sums = self.problem.grid.product(first.partial)
        elements = self._elements(first, last, sums)
        return elements, self._reach(first, last, sums) if elements > 0 else 1

    def _elements(self, first: State, last: State, sums: int) -> float:
        problem, product_of = self.problem, self.problem.grid.product
        whole = math.prod(problem.sizes)
        # A tile assignment gives each group of devices every element once.
        wanted = whole / math.prod(map(product_of, last.dims))
        if sums > 1:
            count, elements = problem.grid.num_devices, whole * product_of(problem.grid.manual_axes)
            # As if every partial sum met where the sum is wanted: a lower bound asks for no more.
            return float(received_elements(wanted * count, elements, sums, elements)) / count
        unsplit, tables = 1, list[Table]()
        for dim, (size, *split) in enumerate(zip(problem.sizes, first.dims, last.dims, strict=True)):
            if any(split):
                tables.append(self._both((dim, split[0], first.padded[dim]), (dim, split[1], last.padded[dim])))
            else:
                unsplit *= size
        if not tables:
            return 0.0
        total = math.prod(tables[1:], start=tables[0])
        return max(0.0, wanted - unsplit * float(np.add.reduce(total)) / len(total))

    def _reach(self, first: State, last: State, sums: int) -> int:
        """From how many devices the one with the first tile has data in the end; 2 at least.

        Partial sums count twice where tiles are as large in the end: reduced for all, each device sends and receives,
        and reduced in parts, the parts are gathered.
        """
        if self.problem.may_cut_unevenly:
            return 2
        reach, tiles, product_of = sums, 1.0, self.problem.grid.product
        rows = zip(self.problem.sizes, first.dims, first.padded, last.dims, last.padded, strict=True)
        for size, have, had, want, wanted in rows:
            if have or want:
                ways, wanted_ways = product_of(have), product_of(want)
                reach *= -(-min(size, wanted // wanted_ways) // max(1, had // ways))
                tiles *= ways / wanted_ways
        return max(2, reach, math.ceil(sums * max(1.0, sums * tiles)) if sums > 1 else 2)

    @remembered
    def _both(self, one: _Split, other: _Split) -> Table:
        """[device]: elements of a dim that it has in both splits."""
        (low, high), (other_low, other_high) = self._tile(one), self._tile(other)
        found = np.minimum(high, other_high) - np.maximum(low, other_low)
        return np.maximum(found, 0, out=found)

    @remembered
    def _tile(self, split: _Split) -> tuple[Table, Table]:
        """[device]: where the real elements of its tile start and end, along a dim."""
        dim, axes, padded = split
        size, tile = self.problem.sizes[dim], padded // self.problem.grid.product(axes)
        start = self.problem.grid.position(axes) * tile
        return np.minimum(start, size), np.minimum(start + tile, size)


# By identity, which `problem_of` keeps: it gives the same problem for the same grid and sizes.
@lru_cache(maxsize=4096)
def distances_of(problem: AxisProblem) -> Distances:
    """The distances of a problem; all searches share them."""
    return Distances(problem)
