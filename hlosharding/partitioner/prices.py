"""The partitioner's prices: seconds to bring a value from one sharding to another, and to compute.

Floor: partitioner.  Formulas are the cost room's; here only what they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hlosharding.cost import Machine
from hlosharding.ir import Shape
from hlosharding.partitioner.broadcast_dims import one_slice_of
from hlosharding.partitioner.iteration_space import untile
from hlosharding.partitioner.value import ValuePlace
from hlosharding.reshard import (
    OBJECTIVES,
    ReshardRequest,
    is_partial,
    least_of,
    least_seconds,
    least_seconds_of_each,
    most_bytes_per_second,
    plan,
    weigh,
)
from hlosharding.sharding import HloSharding, stacked_partials

Numbers = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Numbers)
Way = TypeVar("Way")

# Replicated compute must never buy bytes: work weighs more than its roofline time, so that a split that leaves devices
# idle together loses against one that moves data once.
_WORK_WEIGHT = 8.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What communication costs: bytes received, mean over devices, and predicted seconds."""

    mean_bytes: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.mean_bytes + other.mean_bytes, self.seconds + other.seconds)

    def in_each_of(self, trips: int) -> Cost:
        """What it comes to in a trip of a loop before which it is paid once."""
        return Cost(self.mean_bytes / trips, self.seconds / trips) if trips > 1 else self


NOTHING = Cost()
ROUNDING = 1 - 1e-9
"""What bounds are multiplied by before they are compared with prices, whose sums are rounded in another order."""
SMALL = 1 << 16
"""Bytes that take little room, and whose moves are latency."""


def first_cheapest(ways: Sequence[Way], least: Callable[[Way], float], price: Callable[[Way], float]) -> Way:
    """Of the cheapest ways the first; only what its bound leaves a chance is priced.

    >>> asked = []
    >>> first_cheapest([30, 10, 20], lambda way: way - 5, lambda way: asked.append(way) or way), asked
    (10, [10])
    """
    best, found = (math.inf, 0), ways[0]
    for bound, number in sorted([(least(way), number) for number, way in enumerate(ways)]):
        # What is as cheap may come before it.
        if bound > best[0]:
            break
        if (priced := (price(ways[number]), number)) < best:
            best, found = priced, ways[number]
    return found


def reduction_between(source: HloSharding, target: HloSharding, known: str | None) -> str | None:
    """How partial results of a reshard's ends combine: what XLA calls unreduced are sums, unless we know better."""
    return known or ("add" if is_partial(source) or is_partial(target) else None)


def cost_of_plan(request: ReshardRequest) -> Cost:
    """Bytes and predicted seconds of the steps that the planner chooses."""
    found = plan(request)
    return Cost(found.mean_bytes, found.seconds)


def _reshard_of(
    value: ValuePlace, source: HloSharding, target: HloSharding
) -> tuple[Shape, HloSharding, HloSharding, str | None]:
    """What has to be resharded to have a value at `target`, from where it lies or from a copy of it at `source`."""
    # Partial results lie in the value's own sharding alone: a copy of them elsewhere is their sum.
    kind = value.reduce_kind if source is value.sharding else None
    # Along these dims sums alone are the same, not the terms of them that devices have (`resharding`).
    dims = () if kind else value.broadcast_dims
    return *one_slice_of(value.shape, source, target, dims), kind


@dataclass(slots=True)
class Prices:
    """Prices on one machine, memoised.

    Where the objective is time, predicted seconds are compared; else those of the bytes, and of the predicted ones so
    much as the objective says.
    """

    machine: Machine
    objective: str = "time"
    cost_of_reshard: Callable[[ReshardRequest], Cost] = cost_of_plan
    """Of one between two shardings that differ."""
    _known: dict[tuple[Shape, HloSharding, HloSharding, str | None], Cost] = field(default_factory=dict)

    def comparable(self, nbytes: Number, seconds: Number) -> Number:
        """The figure by which splits of one op are compared, of bytes received and predicted seconds."""
        if self.objective == "time":
            return seconds
        return weigh(self.objective, nbytes, seconds) / self.machine.inside.bandwidth

    def compute_seconds(self, points: Number, nbytes: Number, contracts: bool) -> Number:
        """What an op over so many points of its iteration space that touches `nbytes` of memory adds to that figure."""
        # As latency, memory counts beside bytes on the wire only where the objective is time.
        bandwidth = self.machine.inside.bandwidth
        rate = bandwidth if self.objective == "time" else OBJECTIVES[self.objective]
        return (
            _WORK_WEIGHT * self.flop_seconds(points, contracts)
            + nbytes / self.machine.memory_bandwidth * rate / bandwidth
        )

    def flop_seconds(self, points: Number, contracts: bool) -> Number:
        """Predicted, of a multiplication and an addition at each point."""
        return 2 * points / (self.machine.flops("f32") if contracts else self.machine.vector_flops)

    def reshard_seconds(self, shape: Shape, source: HloSharding, target: HloSharding, reduce_kind: str | None) -> float:
        """`comparable_seconds` to bring an array from `source` to `target`, partial results combined on the way."""
        return self.comparable_seconds(self.reshard_cost(shape, source, target, reduce_kind))

    def reshard_cost(self, shape: Shape, source: HloSharding, target: HloSharding, reduce_kind: str | None) -> Cost:
        """Bytes and predicted seconds of the steps that the planner chooses from `source` to `target`."""
        if source is target or not shape.is_array:
            return NOTHING
        key = (shape, source, target, reduce_kind)
        cost = self._known.get(key)
        if cost is None:
            cost = self._known[key] = self.cost_of_reshard(self._request(*key))
        return cost

    def move_cost(self, value: ValuePlace, source: HloSharding, target: HloSharding) -> Cost:
        """What it costs to have a value in another sharding, from where it lies or from a copy of it at `source`."""
        return self.reshard_cost(*_reshard_of(value, source, target))

    def move_seconds(self, value: ValuePlace, target: HloSharding) -> float:
        """`comparable_seconds` to have a value in another sharding; nothing where it is made anew."""
        return 0.0 if value.is_free else self.comparable_seconds(self.move_cost(value, value.sharding, target))

    def least_move_seconds(self, value: ValuePlace, target: HloSharding) -> float:
        """What `move_seconds` is not below."""
        return 0.0 if value.is_free else self.least_reshard_seconds(*_reshard_of(value, value.sharding, target)[:3])

    def least_reshard_seconds(self, shape: Shape, source: HloSharding, target: HloSharding) -> float:
        """What `reshard_seconds` is not below, whatever is reduced: no step is planned for it."""
        if source is target or not shape.is_array or not shape.size:
            return 0.0
        nbytes = least_of(source, target, shape.dims, self.machine.num_devices).mean_bytes(shape)
        return self.comparable(nbytes, least_seconds(nbytes, self.machine)) * ROUNDING

    def _request(self, shape: Shape, source: HloSharding, target: HloSharding, kind: str | None) -> ReshardRequest:
        return ReshardRequest(
            shape,
            source,
            target,
            reduce_kind=reduction_between(source, target, kind),
            objective=self.objective,
            machine=self.machine,
            num_devices=self.machine.num_devices,
        )

    def comparable_seconds(self, cost: Cost) -> float:
        """What is compared of a cost."""
        return self.comparable(cost.mean_bytes, cost.seconds) if cost is not NOTHING else 0.0

    def least_seconds(self, nbytes: Numbers, trips: int = 1) -> Numbers:
        """`comparable_seconds` that no reshard by which a device receives so many bytes is below.

        With `trips` what it comes to in each of them, where it is done once before the loop.
        """
        return self.comparable(nbytes / trips, least_seconds_of_each(nbytes, self.machine) / trips)

    def seconds_at_best_rate(self, nbytes: Numbers, trips: int = 1) -> Numbers:
        """`comparable_seconds` of a launch and the bytes: by so much options are compared before they are priced.

        Smoother than `least_seconds`, whose hops of small arrays outweigh bytes: with those a step of four layers by
        tensors took 1.05 of the time.
        """
        launches = np.where(nbytes > 0, self.machine.collective_launch, 0.0)
        return self.comparable(nbytes / trips, (launches + nbytes / most_bytes_per_second(self.machine)) / trips)

    def objective_value(self, cost: Cost) -> float:
        """The one figure that the objective minimises: bytes, to which seconds are added by the objective's rate."""
        return weigh(self.objective, cost.mean_bytes, cost.seconds)

    def gather_partials_cost(self, shape: Shape, partial: HloSharding) -> Cost:
        """What it costs to all-gather an array's partial results among the devices that have them."""
        parts = stacked_partials(partial)
        gathered = shape.with_dims((parts.num_tiles_along(0), *shape.dims))
        return self.reshard_cost(gathered, parts, untile(parts, (0,)), None)

    def halo_cost(self, nbytes: float, messages: int) -> Cost:
        """What it costs to receive `nbytes` of halo in so many messages."""
        machine = self.machine
        seconds = messages * (machine.collective_launch + machine.inside.latency) + nbytes / machine.inside.bandwidth
        return Cost(nbytes, seconds)
