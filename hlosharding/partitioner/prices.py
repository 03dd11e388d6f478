"""The partitioner's prices: seconds of moving a value from one sharding to another, and of computing.

Floor: partitioner.  Formulas are the cost room's; here only what they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlosharding.cost import Machine
from hlosharding.ir import Shape
from hlosharding.partitioner.iteration_space import untile
from hlosharding.reshard import ReshardRequest, combined, plan
from hlosharding.sharding import HloSharding, stacked_partials

# Replicated compute must never buy bytes (DESIGN, "Partitioner"): work weighs more than its roofline time, so that a
# split that leaves devices idle together loses against one that moves data once.
_WORK_WEIGHT = 8.0

# How much of a collective's time counts beside its bytes: unless the objective is "time", it only decides between
# splits of (nearly) the same bytes.
_LATENCY_SHARE = {"bytes": 1e-9, "balanced": 1e-5, "time": 1.0}


@dataclass(frozen=True, slots=True)
class Cost:
    """What moving costs a device: bytes received, mean over devices, and predicted seconds."""

    mean_bytes: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.mean_bytes + other.mean_bytes, self.seconds + other.seconds)


NOTHING = Cost()


@dataclass(slots=True)
class Prices:
    """Prices on one machine, memoised."""

    machine: Machine
    objective: str = "balanced"
    _moves: dict[tuple[Shape, HloSharding, HloSharding, str | None], float] = field(default_factory=dict)

    def move(self, shape: Shape, source: HloSharding, target: HloSharding, reduce_kind: str | None) -> float:
        """Seconds to bring an array from `source` to `target`."""
        if source is target or not shape.is_array:
            return 0.0
        key = (shape, source, target, reduce_kind)
        seconds = self._moves.get(key)
        if seconds is None:
            seconds = self._moves[key] = self.rated(self.way(shape, source, target, reduce_kind))
        return seconds

    def rated(self, cost: Cost) -> float:
        """Seconds that a choice between splits counts: unless the objective is time, those of the bytes."""
        if self.objective == "time":
            return cost.seconds
        return cost.mean_bytes / self.machine.inside.bandwidth + _LATENCY_SHARE[self.objective] * cost.seconds

    def way(self, shape: Shape, source: HloSharding, target: HloSharding, reduce_kind: str | None) -> Cost:
        """What the planner's way from `source` to `target` costs."""
        if source is target or not shape.is_array:
            return NOTHING
        machine = self.machine
        request = ReshardRequest(
            shape,
            source,
            target,
            reduce_kind=reduce_kind,
            objective=self.objective,
            machine=machine,
            num_devices=machine.num_devices,
        )
        found = plan(request)
        return Cost(found.mean_bytes, found.seconds)

    def worth(self, cost: Cost) -> float:
        """The one figure that the objective minimises."""
        return combined(self.objective, cost.mean_bytes, cost.seconds)

    def gather_partials(self, shape: Shape, partial: HloSharding) -> float:
        """Seconds to bring all partial results of an array to every device that shares in it."""
        parts = stacked_partials(partial)
        gathered = shape.with_dims((parts.num_tiles_along(0), *shape.dims))
        return self.move(gathered, parts, untile(parts, (0,)), None)

    def work(self, elements: int, nbytes: int, contracts: bool) -> float:
        """Seconds of an op over `elements` points that touches `nbytes` of memory."""
        rate = self.machine.flops("f32") if contracts else self.machine.vector_flops
        return _WORK_WEIGHT * 2 * elements / rate + nbytes / self.machine.memory_bandwidth

    def neighbours(self, nbytes: float, strips: int) -> float:
        """Seconds to receive `nbytes` of halo in so many strips."""
        latency = strips * self.machine.inside.latency * _LATENCY_SHARE[self.objective]
        return latency + nbytes / self.machine.inside.bandwidth
