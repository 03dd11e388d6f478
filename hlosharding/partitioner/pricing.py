"""The partitioner's prices: seconds of moving a value from one sharding to another, and of computing.

Floor: partitioner.  Formulas are the cost room's; here only what they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlosharding.cost import Machine
from hlosharding.ir import Shape
from hlosharding.partitioner.reshard.plan import plan
from hlosharding.sharding import HloSharding

# Replicated compute must never buy bytes (DESIGN, "Partitioner"): work weighs more than its roofline time, so that a
# split that leaves devices idle together loses against one that moves data once.
_WORK_WEIGHT = 8.0

# Unless the objective is "time", latency only decides between splits of (nearly) the same bytes.
_LATENCY_SHARE = 1e-5


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
            found = plan(
                shape, source, target, reduce_kind, self.machine, self.objective, None, self.machine.num_devices
            )
            seconds = found.seconds
            if self.objective != "time":
                seconds = found.mean_bytes / self.machine.inside.bandwidth + _LATENCY_SHARE * seconds
            self._moves[key] = seconds
        return seconds

    def work(self, elements: int, nbytes: int, contracts: bool) -> float:
        """Seconds of an op over `elements` points that touches `nbytes` of memory."""
        rate = self.machine.flops("f32") if contracts else self.machine.vector_flops
        return _WORK_WEIGHT * 2 * elements / rate + nbytes / self.machine.memory_bandwidth

    def neighbours(self, nbytes: float) -> float:
        """Seconds to exchange `nbytes` of halo with both neighbours."""
        latency = 2 * self.machine.inside.latency * (_LATENCY_SHARE if self.objective != "time" else 1.0)
        return latency + nbytes / self.machine.inside.bandwidth
