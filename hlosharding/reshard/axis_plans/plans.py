"""Axis plans: the paths that the search finds on the common grid of source and target, as steps with prices.

Floor: reshard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hlosharding.reshard.axis_plans.common_grid import common_grid
from hlosharding.reshard.axis_plans.moves import AxisProblem, block_of, problem_of
from hlosharding.reshard.axis_plans.prices import MovePrices
from hlosharding.reshard.axis_plans.search import cheapest_path
from hlosharding.reshard.axis_plans.steps_of_moves import steps_of
from hlosharding.reshard.layout import Dims
from hlosharding.reshard.planned_steps import PlannedSteps
from hlosharding.reshard.request import Reshard
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
    problem = problem_of(grid, dims)
    problem = replace(problem, target=problem.target._replace(padded=padded), may_cut_unevenly=True)
    return _Blocked(problem, (1,) * len(dims))


def _found(reshard: Reshard, axes: _Blocked, search: AxisSearch) -> Iterator[PlannedSteps]:
    problem, limit = axes.problem, search.limit
    prices = MovePrices(problem, reshard.shape, math.prod(axes.block), reshard.machine, search.objective)
    for wide in search.wide:
        path = cheapest_path(problem, prices, wide=wide, limit=limit)
        if path is not None:
            cost, moves = path
            yield reshard.price(steps_of(problem.grid, moves, axes.block, reshard.reduce_kind or "add"))
            limit = cost if search.is_narrowing else limit
