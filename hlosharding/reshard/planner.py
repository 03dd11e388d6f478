"""The planner's door: the cheapest steps from one sharding to another, and what they cost.

Floor: reshard.  Puts together the axis plan and the direct plan, and chooses by bytes or by time.

Nothing is gathered that the target does not hold, unless time alone decides: then whatever is faster is taken, the
way by the whole array included, within the memory that the caller allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from hlosharding.cost import Machine, machines
from hlosharding.errors import PartitionError
from hlosharding.ir import REDUCER_KINDS, Shape
from hlosharding.reshard import via_intermediate
from hlosharding.reshard.axis_plan import OBJECTIVES, MovePrices, combined, cost_of, kernels_of, steps_of
from hlosharding.reshard.axis_search import cheapest_path, problem_of
from hlosharding.reshard.common_grid import common_grid
from hlosharding.reshard.for_time import (
    emitted_seconds,
    exchange_and_reorder,
    gather_then_cut,
    guessed_seconds,
    reorder_then_gather,
)
from hlosharding.reshard.layout import Layout, layout_of, least_mean_elements
from hlosharding.reshard.piecewise_plan import MOST_PIECES, shipment
from hlosharding.reshard.steps import AllGather, Pad, Permute, Slice, Step
from hlosharding.sharding import HloSharding

Objective = Literal["bytes", "balanced", "time"]
# Where time alone decides, plans that look at most so much slower than the fastest, and so many, are looked at closely.
_NEAR, _FEW, _ROUNDS = 2.5, 5, 12
_CLOSE_LOOK = 32
"""Devices."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Steps with their price."""

    steps: tuple[Step, ...]
    mean_bytes: float
    seconds: float
    peak_bytes: int
    kernel_seconds: float = 0.0
    """Of cutting and padding by kernels of their own (`kernels_of`); nothing where nothing is sent."""

    def cost(self, objective: str) -> float:
        """What the objective minimises.  Fewer steps that need more kernels are no gain: "balanced" counts those."""
        seconds = self.seconds + (self.kernel_seconds if objective == "balanced" else 0.0)
        return combined(objective, self.mean_bytes, seconds)


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
    """Of a longer way: then no more via_intermediate."""
    longest: float = math.inf
    """Seconds of a way that is known: none that must take longer is worth a look."""

    @property
    def is_close_look(self) -> bool:
        """Does time decide, among devices so few that many ways can be looked at in some milliseconds?"""
        return self.objective == "time" and not self.is_part and self.num_devices <= _CLOSE_LOOK

    def layouts(self) -> tuple[Layout, Layout]:
        """Where source and target tiles lie."""
        dims, n = self.shape.dims, self.num_devices
        return layout_of(self.source, dims, n), layout_of(self.target, dims, n)

    def planned(self, steps: tuple[Step, ...]) -> Planned:
        """Price steps."""
        local = self.shape.with_dims(layout_of(self.source, self.shape.dims, self.num_devices).tile)
        mean, seconds, peak = cost_of(steps, local, self.num_devices, self.machine)
        return Planned(steps, mean, seconds, peak, kernels_of(steps) * self.machine.launch if mean else 0.0)

    def guess(self, steps: tuple[Step, ...]) -> float:
        """About what `as_program` will say."""
        local = self.shape.with_dims(layout_of(self.source, self.shape.dims, self.num_devices).tile)
        return guessed_seconds(steps, local, self.machine)

    def as_program(self, planned: Planned) -> Planned:
        """The same steps, priced op by op."""
        if not planned.mean_bytes:
            return planned
        local = self.shape.with_dims(layout_of(self.source, self.shape.dims, self.num_devices).tile)
        return replace(planned, seconds=emitted_seconds(planned.steps, local, self.num_devices, self.machine))

    def ways(self, source: HloSharding, target: HloSharding) -> Iterable[tuple[Step, ...]]:
        """Plans of a part of the way that axes offer, or the only one."""
        along_axes = self.exchanges(source, target)
        return along_axes or (self.between(source, target).steps,)

    def exchanges(
        self, source: HloSharding, target: HloSharding, padded: tuple[int, ...] | None = None
    ) -> Iterable[tuple[Step, ...]]:
        """Axis plans of a part of the way; with `padded` each dim is padded to that, and tiles may be cut unevenly."""
        part = replace(self, source=source, target=target)
        return dict.fromkeys(found.steps for found in _axis_plans(part, padded))

    def direct(self, source: Layout, target: Layout) -> Iterator[Step]:
        """The fastest direct plan of a part of the way."""
        pieces = shipment(source, target, self.machine, _ROUNDS * self.num_devices)
        if pieces is not None:
            # Padding that comes along in windows of the same size need not be masked.
            yield pieces.plan(min(pieces.choices(self.shape), key=lambda c: (c.seconds, c.rounds, not c.is_grown)))

    def between(self, source: HloSharding, target: HloSharding) -> Planned:
        """The plan of a part of the way; memory is looked at once the way is whole."""
        kind = self.reduce_kind if _is_partial(source) or _is_partial(target) else None
        part = replace(self, source=source, target=target, reduce_kind=kind, memory_limit=None, longest=math.inf)
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
    found = [request.planned(steps) for steps in dict.fromkeys(candidates(request))]
    limit = request.memory_limit
    if limit is not None:
        # What the other objectives would choose may be leaner.
        found += [request.planned(s) for o in OBJECTIVES for s in candidates(replace(request, objective=o))]
    fitting = [p for p in found if limit is None or p.peak_bytes <= limit]
    if not fitting:
        raise _no_plan(request, found)
    if request.objective == "time" and not request.is_part and len(fitting) > 1:
        fitting = _fastest(request, fitting)
    return min(fitting, key=lambda p: (p.cost(request.objective), len(p.steps)))


def _fastest(request: Request, found: list[Planned]) -> list[Planned]:
    """Those that may be the fastest, priced as programs; or where that takes long the likeliest one."""
    guessed = [replace(p, seconds=request.guess(p.steps)) for p in found]
    order = sorted(guessed, key=lambda p: (p.seconds, len(p.steps)))
    if not request.is_close_look:
        return order[:1]
    return [request.as_program(p) for p in order[:_FEW] if p.seconds <= _NEAR * order[0].seconds]


def _check(request: Request) -> None:
    if request.source.is_manual() or request.target.is_manual():
        raise PartitionError(
            f"{request.shape} cannot go from {request.source} to {request.target}",
            remedy="enter and leave manual regions through the SPMDFullToShardShape and SPMDShardToFullShape calls",
        )
    partial = [s for s in (request.source, request.target) if _is_partial(s)]
    if partial and request.reduce_kind not in REDUCER_KINDS:
        raise PartitionError(
            f"{partial[0]} is partial, and its reduction {request.reduce_kind!r} is none of {', '.join(REDUCER_KINDS)}",
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


def candidates(request: Request) -> Iterator[tuple[Step, ...]]:
    """The ways from source to target that are worth a price."""
    if _is_partial(request.target) and not _is_partial(request.source):
        yield from via_intermediate.to_partial(request)
        return
    source, target = request.layouts()
    bound = _bound(request)
    found = list(_axis_plans(request))
    best = min(found, key=lambda p: p.cost(request.objective), default=None)
    yield from (p.steps for p in found)
    if best is not None and _is_hard_to_beat(request, best, bound):
        return
    if source.addends > 1:
        yield from via_intermediate.reduce_first(request)
        return
    detoured = (
        [] if request.is_part else [*via_intermediate.gather_last(request), *via_intermediate.reorder_first(request)]
    )
    # Where time decides, nothing wins that takes dozens of rounds.
    most = _ROUNDS * request.num_devices if request.objective == "time" else MOST_PIECES
    direct = [(step,) for step in _direct(request, source, target, best, most)]
    if request.objective == "time" and not request.is_part:
        known = [p for p in (*found, *map(request.planned, direct)) if not _is_too_large(request, p)]
        looking = replace(request, longest=min((request.guess(p.steps) for p in known), default=math.inf))
        detoured += _for_time(looking)
    yield from detoured
    yield from direct
    if best is None and not (detoured or direct):
        yield from ((step,) for step in _direct(request, source, target, best, None))


def _for_time(request: Request) -> Iterator[tuple[Step, ...]]:
    """Ways in more bytes, or more steps, that may be faster."""
    yield from via_intermediate.reorder_last(request)
    yield from via_intermediate.tile_by_tile(request)
    yield from reorder_then_gather(request)
    yield from gather_then_cut(request)
    if request.is_close_look or not math.isfinite(request.longest):
        yield from via_intermediate.gather_first(request)
    if request.is_close_look:
        yield from via_intermediate.cut_last(request)
        yield from exchange_and_reorder(request)


def _is_hard_to_beat(request: Request, best: Planned, bound: float) -> bool:
    """At the bound, in few steps; where time alone decides, small arrays may still travel faster in more bytes."""
    is_short = len(best.steps) <= 2
    if request.objective == "time":
        is_short = not best.steps or (len(best.steps) == 1 and isinstance(best.steps[0], (Permute, AllGather)))
    return best.mean_bytes <= bound * 1.0001 and is_short


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


def _axis_plans(request: Request, padded: tuple[int, ...] | None = None) -> Iterator[Planned]:
    grid = common_grid(request.source, request.target, request.shape.rank, request.num_devices)
    if grid is None:
        return
    problem, bound = problem_of(grid, request.shape.dims), _bound(request)
    if padded is not None:
        problem = replace(problem, target=problem.target._replace(padded=padded), is_nested=True)
    is_close = request.is_close_look
    # By themselves exchanges look dearer than they are in a program: where time decides, the leanest path counts, too.
    for objective in ("time", "bytes") if is_close else (request.objective,):
        prices, most = MovePrices(problem, request.shape, request.machine, objective), _most(request, objective)
        for wide in (True,) if math.isfinite(request.longest) else (False, True):
            path = cheapest_path(problem, prices, wide=wide, most=most)
            if path is not None:
                found = request.planned(steps_of(problem, path[1], prices, request.reduce_kind or "add"))
                yield found
                if _is_hard_to_beat(request, found, bound):
                    return
                most = path[0] if is_close else most


def _most(request: Request, objective: str) -> float:
    """What a path may cost that is worth a look."""
    if objective == "bytes":
        return request.longest * request.machine.inside.bandwidth * max(1, 2 * len(request.machine.torus))
    return combined(objective, 0.0, _NEAR * request.longest)


def _is_partial(sharding: HloSharding) -> bool:
    return sharding.is_unreduced() or sharding.is_unreduced_subgroup()


def _bound(request: Request) -> float:
    """Mean bytes that no plan can do without."""
    return least_mean_elements(*request.layouts()) * request.shape.byte_size / request.shape.size
