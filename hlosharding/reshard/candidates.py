"""The plans from one sharding to another that are worth a price.

Floor: reshard.  Asks every kind of plan in turn; `planner` chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hlosharding.reshard.axis_plans import AxisSearch, axis_plans, have_grid
from hlosharding.reshard.for_time import axis_searches_for_time, piecewise_search_for_time, plans_for_time
from hlosharding.reshard.intermediates import (
    keep_source_order,
    keep_whole,
    plan_via,
    plans_via,
    reduce_source,
    reorder_source,
    split_copies,
)
from hlosharding.reshard.piecewise import PiecewiseSearch, piecewise_plans
from hlosharding.reshard.request import PlannedSteps, Reshard, Steps, is_partial
from hlosharding.reshard.steps import Keep, Pad, Permute
from hlosharding.sharding import partial_sum_groups

_FAR_TOO_MANY_PIECES = 100_000
"""Seconds of planning: another plan is taken, if there is one.  Half and double give the same plans."""


def candidates(reshard: Reshard) -> Iterator[Steps]:
    """Axis plans first; where none is good enough, plans via an intermediate sharding, for time, and piecewise ones.

    Partial sums along axes go by no better way: what that meets first is a move along axes, too.  But tiles that are
    put into another order, or padded, may go in pieces.
    """
    if is_partial(reshard.target) and not is_partial(reshard.source):
        yield from (plan_via(reshard, way) for way in keep_whole(reshard))
        return
    source, target = reshard.layouts
    if source.num_partial_sums < target.num_partial_sums and (local := list(_more_partial_sums(reshard))):
        yield from local
        return
    found = list(axis_plans(reshard, _axis_searches(reshard)))
    yield from (plan.steps for plan in found)
    best = min(found, key=lambda plan: plan.cost(reshard.objective), default=None)
    if best is not None and reshard.is_good_enough(best):
        return
    if source.num_partial_sums > 1:
        if best is None or any(isinstance(step, (Permute, Pad)) for step in best.steps):
            yield from plans_via(reshard, reduce_source(reshard), _cheapest(reshard, best, ()))
    else:
        yield from _others(reshard, found, best)


def _more_partial_sums(reshard: Reshard) -> Iterator[Steps]:
    """Of copies of partial sums one stays, the others become neutral elements: nothing moves."""
    kind, (source, target) = reshard.reduce_kind, reshard.layouts
    if kind is None or (source.index != target.index).any():
        return
    before, after = (partial_sum_groups(end, reshard.num_devices) for end in (reshard.source, reshard.target))
    adds_to = {device: group for group in before for device in group}
    kept = [adds_to[group[0]] for group in after]
    if all(set(one) <= set(group) for one, group in zip(kept, after, strict=True)):
        keepers = {device for group in kept for device in group}
        yield (Keep(tuple(device in keepers for device in range(reshard.num_devices)), kind),)


def _others(reshard: Reshard, along_axes: list[PlannedSteps], best: PlannedSteps | None) -> Iterator[Steps]:
    """Plans of a whole value beside axis plans."""
    search = piecewise_search_for_time(reshard) if reshard.objective == "time" else PiecewiseSearch()
    piecewise = list(piecewise_plans(reshard, search, best))
    others: list[Steps] = []
    cheapest = _cheapest(reshard, best, piecewise)
    if not reshard.is_part and not (cheapest is not None and reshard.is_cheapest(cheapest)):
        if not have_grid(reshard, reshard.source, reshard.target):
            # Where time decides, plans are priced as programs.
            known = cheapest if reshard.objective != "time" else None
            others += plans_via(reshard, (*split_copies(reshard), *reorder_source(reshard)), known)
        if reshard.objective == "time":
            others += plans_for_time(reshard, (*along_axes, *map(reshard.price, piecewise)))
    yield from others
    yield from piecewise
    if best is None and not (others or piecewise):
        yield from _only_pieces(reshard, search)


def _cheapest(reshard: Reshard, best: PlannedSteps | None, others: Iterable[Steps]) -> PlannedSteps | None:
    """Of the plans that fit the memory."""
    known = (*(() if best is None else (best,)), *map(reshard.price, others))
    fitting = [plan for plan in known if plan.fits(reshard.memory_limit)]
    return min(fitting, key=lambda plan: plan.cost(reshard.objective), default=None)


def _only_pieces(reshard: Reshard, search: PiecewiseSearch) -> Iterator[Steps]:
    """Where nothing else is found, pieces however many; of far too many another plan, if there is one."""
    most = max(_FAR_TOO_MANY_PIECES, 4 * reshard.num_devices)
    found = list(piecewise_plans(reshard, replace(search, most_pieces=most), None)) or list(_in_source_order(reshard))
    yield from found or piecewise_plans(reshard, replace(search, most_pieces=None), None)


def _in_source_order(reshard: Reshard) -> Iterator[Steps]:
    for way in keep_source_order(reshard):
        is_new = way.sharding not in (reshard.source, reshard.target)
        if is_new and have_grid(reshard, reshard.source, way.sharding):
            yield plan_via(reshard, way)


def _axis_searches(reshard: Reshard) -> tuple[AxisSearch, ...]:
    return (
        axis_searches_for_time(reshard)
        if reshard.objective == "time"
        else (AxisSearch(reshard.objective, is_narrowing=True),)
    )
