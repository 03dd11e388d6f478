"""The planner: the cheapest steps from one sharding to another, and what they cost.

Floor: reshard.  Prices the candidates and chooses by bytes, by time, or by both.

Nothing is gathered that the target does not hold, unless time alone decides: then whatever is faster is taken, a
gather of the whole array included, within the memory that the caller allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hlosharding.cost import Machine
from hlosharding.errors import PartitionError
from hlosharding.ir import REDUCER_KINDS, Shape
from hlosharding.reshard.axis_plans import AxisSearch, axis_plans, have_grid
from hlosharding.reshard.for_time import axis_searches_for_time, fastest, piecewise_search_for_time, plans_for_time
from hlosharding.reshard.intermediates import (
    keep_source_order,
    keep_whole,
    plan_via,
    plans_via,
    reduce_source,
    reorder_source,
    split_copies,
)
from hlosharding.reshard.layout import Layout, Table
from hlosharding.reshard.objectives import OBJECTIVES, best, check_objective
from hlosharding.reshard.piecewise import PiecewiseSearch, piecewise_plans
from hlosharding.reshard.request import PlannedSteps, Reshard, ReshardRequest, Steps, is_partial
from hlosharding.reshard.steps import Keep, Pad, Permute, Slice, Step
from hlosharding.sharding import HloSharding, partial_sum_groups


def plan_steps(
    shape: Shape,
    source: HloSharding,
    target: HloSharding,
    *,
    reduce_kind: str | None = None,
    objective: str = "time",
    machine: Machine | None = None,
    memory_limit: int | None = None,
    num_devices: int | None = None,
) -> tuple[Step, ...]:
    """Steps that turn local tiles of `source` into those of `target`; `shape` is global.  Remembered.

    A source with an unreduced subgroup is partial, its partial sums to be combined by `reduce_kind`.  `memory_limit` is
    in bytes per device.  Raises PartitionError where a sharding says nothing about single devices, manual groups
    differ, or no plan fits the memory.

    >>> rows, columns = HloSharding.parse("{devices=[4,1]<=[4]}"), HloSharding.parse("{devices=[1,4]<=[4]}")
    >>> [str(step) for step in plan_steps(Shape.parse("f32[8,8]"), rows, columns)]
    ['all-to-all, split dim 1, join dim 0, over {0, 1, 2, 3}']
    >>> plan_steps(Shape.parse("f32[8,8]"), rows, rows)
    ()
    """
    if source is target or not shape.is_array:
        return ()
    request = ReshardRequest(
        shape,
        source,
        target,
        reduce_kind=reduce_kind,
        objective=objective,
        machine=machine,
        memory_limit=memory_limit,
        num_devices=num_devices,
    )
    return plan(request).steps


@lru_cache(maxsize=16384)
def plan(request: ReshardRequest) -> PlannedSteps:
    """The cheapest steps, with their price.  Remembered.

    >>> rows, whole = HloSharding.parse("{devices=[4]<=[4]}"), HloSharding.replicate()
    >>> plan(ReshardRequest(Shape.parse("f32[8]"), rows, whole)).mean_bytes
    24.0
    """
    return _planned(reshard_of(request))


def reshard_of(request: ReshardRequest) -> Reshard:
    """The reshard that is asked for, machine and devices settled; raises for an objective nobody knows."""
    check_objective(request.objective)
    return Reshard(
        request.shape,
        request.source,
        request.target,
        reduce_kind=request.reduce_kind,
        objective=request.objective,
        machine=request.target_machine,
        memory_limit=request.memory_limit,
        num_devices=request.devices,
        planner=_planned,
    )


# Remembered beside `plan`: parts of plans are asked for here, and requests that leave the machine or the devices out
# meet those that say them.
@lru_cache(maxsize=16384)
def _planned(reshard: Reshard) -> PlannedSteps:
    """The cheapest steps of a reshard, or of a part of one."""
    if reshard.source == reshard.target:
        return reshard.price(())
    _check(reshard)
    if reshard.shape.size == 0:
        return reshard.price(tuple(_resized(reshard)))
    fitting = _fitting(reshard)
    # A part is priced as a program with the whole plan: by itself it would have other neighbours to vanish into.
    if reshard.objective == "time" and not reshard.is_part and len(fitting) > 1:
        fitting = fastest(reshard, fitting)
    return fitting[best(reshard.objective, [plan.figures for plan in fitting])]


def _fitting(reshard: Reshard) -> list[PlannedSteps]:
    """The candidates that fit the memory; what the other objectives would try may be leaner."""
    found = [reshard.price(steps) for steps in dict.fromkeys(candidates(reshard))]
    if reshard.memory_limit is None:
        return found
    for objective in OBJECTIVES:
        found += map(reshard.price, candidates(replace(reshard, objective=objective)))
    fitting = [plan for plan in found if plan.fits(reshard.memory_limit)]
    if fitting:
        return fitting
    least = min(plan.peak_bytes for plan in found)
    raise PartitionError(
        f"no plan for {reshard.shape} from {reshard.source} to {reshard.target} fits in {reshard.memory_limit} bytes "
        "per device",
        remedy=f"the leanest needs {least}",
    )


def _resized(reshard: Reshard) -> Iterator[Step]:
    """Without elements only the sizes of the empty tiles change."""
    source, target = reshard.layouts
    if source.tile != target.tile:
        yield Slice(tuple(map(min, source.tile, target.tile)))
        yield Pad(target.tile)


def _check(reshard: Reshard) -> None:
    if reshard.source.is_manual() or reshard.target.is_manual():
        raise PartitionError(
            f"{reshard.shape} cannot go from {reshard.source} to {reshard.target}",
            remedy="enter and leave manual regions through the SPMDFullToShardShape and SPMDShardToFullShape calls",
        )
    partial = [s for s in (reshard.source, reshard.target) if is_partial(s)]
    if partial and reshard.reduce_kind not in REDUCER_KINDS:
        kinds = ", ".join(REDUCER_KINDS)
        raise PartitionError(
            f"{partial[0]} is partial, and its reduction {reshard.reduce_kind!r} is none of {kinds}",
            remedy="say how its partial sums combine (reduce_kind)",
        )
    source, target = reshard.layouts
    # Without manual groups both have the one table of zeros that all layouts share: nothing is compared.
    if source.manual_group is not target.manual_group and (source.manual_group != target.manual_group).any():
        raise PartitionError(
            f"{reshard.source} and {reshard.target} have different manual groups",
            remedy="leave the manual region first",
        )


# ---- the plans from one sharding to another that are worth a price
#
# Asks every kind of plan in turn; `planner` chooses.


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
    # All that one partial sum was added up over must lie in the target's group, or it would be added nowhere.
    if all(set(one) <= set(group) for one, group in zip(kept, after, strict=True)):
        keeps = np.isin(np.arange(reshard.num_devices), [device for group in kept for device in group])
        if _are_copies_alike(target, np.where(keeps, source.partial_sum, -1)):
            yield (Keep(tuple(keeps.tolist()), kind),)


def _are_copies_alike(layout: Layout, held: Table) -> bool:
    """Do devices that should have the same partial sum hold the same?"""
    copies = layout.tile_codes * layout.num_partial_sums + layout.partial_sum
    return len(np.unique(np.stack([copies, held]), axis=1).T) == len(np.unique(copies))


def _others(reshard: Reshard, along_axes: list[PlannedSteps], best: PlannedSteps | None) -> Iterator[Steps]:
    """Plans of a whole value beside axis plans."""
    search = piecewise_search_for_time(reshard) if reshard.objective == "time" else PiecewiseSearch()
    piecewise = list(piecewise_plans(reshard, search, best))
    others: list[Steps] = []
    cheapest = _cheapest(reshard, best, piecewise)
    if not reshard.is_part and not (cheapest is not None and reshard.is_cheapest(cheapest)):
        # On a common grid these are among the moves of the search: it splits free axes, and joins by a permute.
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
        # By way of one of its ends a plan would wait for itself.
        is_new = way.sharding not in (reshard.source, reshard.target)
        if is_new and have_grid(reshard, reshard.source, way.sharding):
            yield plan_via(reshard, way)


def _axis_searches(reshard: Reshard) -> tuple[AxisSearch, ...]:
    return (
        axis_searches_for_time(reshard)
        if reshard.objective == "time"
        else (AxisSearch(reshard.objective, is_narrowing=True),)
    )
