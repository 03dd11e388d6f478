"""The planner's door: the cheapest steps from one sharding to another, and what they cost.

Floor: partitioner/reshard.  Puts together the axis plan and the direct plan, and chooses by bytes or by time.

Nothing is gathered that the target does not hold, unless time alone decides: then small arrays may take the way by the
whole, which is one collective.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from hlosharding.cost import Machine, machines
from hlosharding.errors import PartitionError
from hlosharding.ir import Shape
from hlosharding.partitioner.reshard import detours, gathers
from hlosharding.partitioner.reshard.axes import common_grid
from hlosharding.partitioner.reshard.axis_plan import OBJECTIVES, MovePrices, combined, cost_of, steps_of
from hlosharding.partitioner.reshard.direct import MOST_PIECES, shipment
from hlosharding.partitioner.reshard.emitted import emitted_seconds
from hlosharding.partitioner.reshard.layout import Layout, layout_of, least_mean_elements
from hlosharding.partitioner.reshard.search import cheapest_path, problem_of
from hlosharding.partitioner.reshard.steps import REDUCE_KINDS, AllGather, Pad, Permute, Slice, Step
from hlosharding.sharding import HloSharding

Objective = Literal["bytes", "balanced", "time"]
# Where time alone decides, plans that look at most so much slower than the fastest, and so many, are looked at closely.
_NEAR, _FEW, _ROUNDS = 2.5, 5, 12


@dataclass(frozen=True, slots=True)
class Planned:
    """Steps with their price."""

    steps: tuple[Step, ...]
    mean_bytes: float
    seconds: float
    peak_bytes: int

    def cost(self, objective: str) -> float:
        """What the objective minimises."""
        return combined(objective, self.mean_bytes, self.seconds)


@dataclass(frozen=True, slots=True)
class Request:
    """One question to the planner."""

    shape: Shape
    source: HloSharding
    target: HloSharding
    reduce_kind: str | None
    objective: str
    machine: Machine
    memory_limit: int | None
    num_devices: int
    is_part: bool = False
    """Of a longer way: then no more detours."""

    def layouts(self) -> tuple[Layout, Layout]:
        """Where source and target tiles lie."""
        dims, n = self.shape.dims, self.num_devices
        return layout_of(self.source, dims, n), layout_of(self.target, dims, n)

    def planned(self, steps: tuple[Step, ...]) -> Planned:
        """Price steps."""
        local = self.shape.with_dims(layout_of(self.source, self.shape.dims, self.num_devices).tile)
        return Planned(steps, *cost_of(steps, local, self.num_devices, self.machine))

    def as_program(self, planned: Planned) -> Planned:
        """The same steps, priced op by op."""
        if not planned.mean_bytes:
            return planned
        local = self.shape.with_dims(layout_of(self.source, self.shape.dims, self.num_devices).tile)
        return replace(planned, seconds=emitted_seconds(planned.steps, local, self.num_devices, self.machine))

    def between(self, source: HloSharding, target: HloSharding) -> Planned:
        """The plan of a part of the way; memory is looked at once the way is whole."""
        kind = self.reduce_kind if _is_partial(source) or _is_partial(target) else None
        part = replace(self, source=source, target=target, reduce_kind=kind, memory_limit=None)
        return _planned(replace(part, is_part=not _is_partial(self.source)))


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

    A source with an unreduced subgroup is partial, its addends to be combined by `reduce_kind`.  `memory_limit` is in
    bytes per device.  Raises PartitionError where a sharding says nothing about single devices, manual groups differ,
    or no plan fits the memory.

    >>> rows, columns = HloSharding.parse("{devices=[4,1]<=[4]}"), HloSharding.parse("{devices=[1,4]<=[4]}")
    >>> [str(step) for step in plan_steps(Shape.parse("f32[8,8]"), rows, columns)]
    ['all-to-all, split dim 1, join dim 0, over {0, 1, 2, 3}']
    >>> plan_steps(Shape.parse("f32[8,8]"), rows, rows)
    ()
    """
    if source is target or not shape.is_array:
        return ()
    return plan(shape, source, target, reduce_kind, machine, objective, memory_limit, num_devices).steps


def plan_time(
    shape: Shape,
    source: HloSharding,
    target: HloSharding,
    reduce_kind: str | None = None,
    machine: Machine | None = None,
    *,
    objective: str = "time",
) -> float:
    """Predicted seconds of `plan_steps`; 0 for slices.

    >>> plan_time(Shape.parse("f32[8,8]"), HloSharding.replicate(), HloSharding.parse("{devices=[1,4]<=[4]}"))
    0.0
    """
    if source is target or not shape.is_array:
        return 0.0
    return plan(shape, source, target, reduce_kind, machine, objective, None, None).seconds


@lru_cache(maxsize=16384)
def plan(
    shape: Shape,
    source: HloSharding,
    target: HloSharding,
    reduce_kind: str | None,
    machine: Machine | None,
    objective: str,
    memory_limit: int | None,
    num_devices: int | None,
) -> Planned:
    """`plan_steps` with its price."""
    if objective not in OBJECTIVES:
        raise PartitionError(f"no objective {objective!r}", remedy=f"use one of {', '.join(OBJECTIVES)}")
    n, used = resolved(source, target, machine, num_devices)
    return _planned(Request(shape, source, target, reduce_kind, objective, used, memory_limit, n))


def resolved(
    source: HloSharding, target: HloSharding, machine: Machine | None, num_devices: int | None
) -> tuple[int, Machine]:
    """The number of devices (as given, as a sharding lists them, as the machine has) and the machine with that many."""
    known = num_devices or source.num_devices or target.num_devices or (machine and machine.num_devices)
    n = known or 1 + max((s.device or 0) for s in (source, target))
    return n, (machine or machines.h100(n)).with_devices(n)


@lru_cache(maxsize=16384)
def _planned(request: Request) -> Planned:
    if request.source == request.target:
        return request.planned(())
    _check(request)
    source, target = request.layouts()
    if (source.world != target.world).any():
        raise PartitionError(
            f"{request.source} and {request.target} have different manual groups",
            remedy="leave the manual region first",
        )
    if request.shape.size == 0:
        return request.planned(tuple(_resized(request)))
    found = [request.planned(steps) for steps in dict.fromkeys(_candidates(request))]
    limit = request.memory_limit
    if limit is not None:
        # What the other objectives would choose may be leaner.
        found += [request.planned(s) for o in OBJECTIVES for s in _candidates(replace(request, objective=o))]
    fitting = [p for p in found if limit is None or p.peak_bytes <= limit]
    if not fitting:
        raise _no_plan(request, found)
    if request.objective == "time" and not request.is_part and len(fitting) > 1:
        fitting = [request.as_program(p) for p in _fastest(fitting)]
    return min(fitting, key=lambda p: (p.cost(request.objective), len(p.steps)))


def _fastest(found: list[Planned]) -> list[Planned]:
    """The few that are worth being priced as programs."""
    order = sorted(found, key=lambda p: (p.seconds, len(p.steps)))
    return [p for p in order if p.seconds <= _NEAR * order[0].seconds][:_FEW]


def _check(request: Request) -> None:
    if request.source.is_manual() or request.target.is_manual():
        raise PartitionError(
            f"{request.shape} cannot go from {request.source} to {request.target}",
            remedy="enter and leave manual regions through the SPMDFullToShardShape and SPMDShardToFullShape calls",
        )
    partial = [s for s in (request.source, request.target) if _is_partial(s)]
    if partial and request.reduce_kind not in REDUCE_KINDS:
        raise PartitionError(
            f"{partial[0]} is partial, and its reduction {request.reduce_kind!r} is none of {', '.join(REDUCE_KINDS)}",
            remedy="say how its addends combine (reduce_kind)",
        )


def _no_plan(request: Request, found: list[Planned]) -> PartitionError:
    what = f"{request.shape} from {request.source} to {request.target}"
    least = min(p.peak_bytes for p in found)
    return PartitionError(
        f"no plan for {what} fits in {request.memory_limit} bytes per device", remedy=f"the leanest needs {least}"
    )


def _resized(request: Request) -> Iterator[Step]:
    """Without elements only the sizes of the empty tiles change."""
    source, target = request.layouts()
    if source.tile != target.tile:
        yield Slice(tuple(map(min, source.tile, target.tile)))
        yield Pad(target.tile)


def _candidates(request: Request) -> Iterator[tuple[Step, ...]]:
    if _is_partial(request.target) and not _is_partial(request.source):
        yield from detours.to_partial(request)
        return
    source, target = request.layouts()
    bound = least_mean_elements(source, target) * _element_bytes(request.shape)
    found = list(_axis_plans(request, bound))
    best = min(found, key=lambda p: p.cost(request.objective), default=None)
    yield from (p.steps for p in found)
    if best is not None and _is_hard_to_beat(request, best, bound):
        return
    if source.addends > 1:
        yield from detours.reduce_first(request)
        return
    detoured = [] if request.is_part else [*detours.gather_last(request), *detours.reorder_first(request)]
    if request.objective == "time" and not request.is_part:
        detoured += [
            *detours.reorder_last(request),
            *detours.tile_by_tile(request),
            *(detours.gather_first(request) if best is None else ()),
            *gathers.reorder_then_gather(request),
            *gathers.gather_then_cut(request),
        ]
    yield from detoured
    is_only_way = best is None and not detoured
    # Where time decides, nothing wins that takes dozens of rounds.
    most = _ROUNDS * request.num_devices if request.objective == "time" else MOST_PIECES
    yield from ((step,) for step in _direct(request, source, target, best, None if is_only_way else most))


def _is_hard_to_beat(request: Request, best: Planned, bound: float) -> bool:
    """At the bound, in few steps; where time alone decides, small arrays may still travel faster in more bytes."""
    most = 2 if request.objective != "time" else 1 if isinstance(best.steps[-1], (Permute, AllGather)) else 0
    return best.mean_bytes <= bound * 1.0001 and len(best.steps) <= most


def _direct(request: Request, source: Layout, target: Layout, best: Planned | None, most: int | None) -> Iterator[Step]:
    """The best direct plan, or where time alone decides the best two; none if there are too many pieces, or if even
    the estimate is worse than `best`."""
    pieces = shipment(source, target, request.machine, most)
    if pieces is None:
        return
    prices = [
        (combined(request.objective, c.mean_bytes, c.seconds), c.rounds, c) for c in pieces.choices(request.shape)
    ]
    is_time = request.objective == "time"
    for cost, _, choice in sorted(prices, key=lambda p: p[:2])[: 2 if is_time else 1]:
        if (
            best is None
            or cost < (_NEAR if is_time else 1.0) * best.cost(request.objective)
            or _is_too_large(request, best)
        ):
            yield pieces.plan(choice)


def _is_too_large(request: Request, planned: Planned) -> bool:
    return request.memory_limit is not None and planned.peak_bytes > request.memory_limit


def _axis_plans(request: Request, bound: float) -> Iterator[Planned]:
    grid = common_grid(request.source, request.target, request.shape.rank, request.num_devices)
    if grid is None:
        return
    problem = problem_of(grid, request.shape.dims)
    prices = MovePrices(problem, request.shape, request.machine, request.objective)
    for wide in (False, True):
        path = cheapest_path(problem, prices, wide=wide)
        if path is not None:
            found = request.planned(steps_of(problem, path[1], prices, request.reduce_kind or "add"))
            yield found
            if _is_hard_to_beat(request, found, bound):
                return


def _is_partial(sharding: HloSharding) -> bool:
    return sharding.is_unreduced() or sharding.is_unreduced_subgroup()


def _element_bytes(shape: Shape) -> float:
    return shape.byte_size / shape.size
