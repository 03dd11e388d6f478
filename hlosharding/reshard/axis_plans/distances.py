"""How far apart two states on a grid of axes are: what devices must receive at least, and from how many others.

Floor: reshard.  Knows axes and sizes; nothing of bytes or seconds.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from hlosharding.reshard.axis_plans.common_grid import Axes
from hlosharding.reshard.axis_plans.moves import AxisProblem, State
from hlosharding.reshard.layout import Table, received_elements

_Split = tuple[int, Axes, int]
"""(dim, the axes that split it, its padded size)"""


class Distances:
    """Between the states of one problem; each is found once."""

    def __init__(self, problem: AxisProblem) -> None:
        self.problem = problem
        self._known: dict[tuple[State, State], tuple[float, int]] = {}
        self._tiles: dict[_Split, tuple[Table, Table]] = {}
        self._shared: dict[tuple[_Split, _Split], Table] = {}

    def between(self, first: State, last: State) -> tuple[float, int]:
        """What any path from one state to another brings: elements, mean over devices; from how many devices."""
        found = self._known.get((first, last))
        if found is None:
            sums = self.problem.grid.product(first.partial)
            elements = self._elements(first, last, sums)
            found = elements, self._reach(first, last, sums) if elements > 0 else 1
            self._known[first, last] = found
        return found

    def _elements(self, first: State, last: State, sums: int) -> float:
        problem, product_of = self.problem, self.problem.grid.product
        whole = math.prod(problem.sizes)
        # A tile assignment gives each group of devices every element once.
        wanted = whole / math.prod(map(product_of, last.dims))
        if sums > 1:
            count, elements = problem.grid.num_devices, whole * product_of(problem.grid.manual_axes)
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

    def _both(self, one: _Split, other: _Split) -> Table:
        """[device]: elements of a dim that it has in both splits."""
        found = self._shared.get((one, other))
        if found is None:
            (low, high), (other_low, other_high) = self._tile(one), self._tile(other)
            found = np.minimum(high, other_high) - np.maximum(low, other_low)
            found = self._shared[one, other] = np.maximum(found, 0, out=found)
        return found

    def _tile(self, split: _Split) -> tuple[Table, Table]:
        """[device]: where the real elements of its tile start and end, along a dim."""
        found = self._tiles.get(split)
        if found is None:
            dim, axes, padded = split
            size, tile = self.problem.sizes[dim], padded // self.problem.grid.product(axes)
            start = self.problem.grid.position(axes) * tile
            found = self._tiles[split] = np.minimum(start, size), np.minimum(start + tile, size)
        return found


@lru_cache(maxsize=4096)
def distances_of(problem: AxisProblem) -> Distances:
    """The distances of a problem; all searches share them."""
    return Distances(problem)
