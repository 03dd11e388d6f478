"""The planner: the cheapest steps from one sharding to another, and what they cost.

Floor: reshard.  Prices the candidates and chooses by bytes, by time, or by both.

Nothing is gathered that the target does not hold, unless time alone decides: then whatever is faster is taken, a
gather of the whole array included, within the memory that the caller allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from hlosharding.cost import Machine
from hlosharding.errors import PartitionError
from hlosharding.ir import REDUCER_KINDS, Shape
from hlosharding.reshard.candidates import candidates
from hlosharding.reshard.for_time import fastest
from hlosharding.reshard.objectives import OBJECTIVES, best, check_objective
from hlosharding.reshard.request import PlannedSteps, Reshard, ReshardRequest, is_partial
from hlosharding.reshard.steps import Pad, Slice, Step
from hlosharding.sharding import HloSharding


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


@lru_cache(maxsize=16384)
def _planned(reshard: Reshard) -> PlannedSteps:
    """The cheapest steps of a reshard, or of a part of one."""
    if reshard.source == reshard.target:
        return reshard.price(())
    _check(reshard)
    if reshard.shape.size == 0:
        return reshard.price(tuple(_resized(reshard)))
    fitting = _fitting(reshard)
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
    if source.manual_group is not target.manual_group and (source.manual_group != target.manual_group).any():
        raise PartitionError(
            f"{reshard.source} and {reshard.target} have different manual groups",
            remedy="leave the manual region first",
        )
