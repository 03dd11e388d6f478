"""Steps with their price: bytes received, seconds, memory.

Floor: reshard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hlosharding.cost import Machine
from hlosharding.ir import Shape
from hlosharding.reshard.objectives import combined
from hlosharding.reshard.steps import DynamicSlice, Pad, ReduceScatter, Step

Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class PlannedSteps:
    """Steps with their price."""

    steps: Steps
    mean_bytes: float
    """Received by a device, mean over devices."""
    seconds: float
    peak_bytes: int
    """Most bytes alive during a step."""
    kernel_seconds: float = 0.0
    """Of cutting and padding by kernels of their own (`kernels_of`); nothing where nothing is sent."""

    def cost(self, objective: str) -> float:
        """What the objective minimises.  Fewer steps that need more kernels are no gain: "balanced" counts those."""
        seconds = self.seconds + (self.kernel_seconds if objective == "balanced" else 0.0)
        return combined(objective, self.mean_bytes, seconds)

    def fits(self, memory_limit: int | None) -> bool:
        """Does a device with so many bytes hold what is alive at once?"""
        return memory_limit is None or self.peak_bytes <= memory_limit


def priced(steps: Steps, local: Shape, num_devices: int, machine: Machine) -> PlannedSteps:
    """The price of steps that start from local arrays `local`.

    >>> from hlosharding.cost import machines
    >>> priced((), Shape.parse("f32[8]"), 4, machines.h100(4)).peak_bytes
    32
    """
    mean, seconds, peak, shape = 0.0, 0.0, local.byte_size, local
    for step in steps:
        mean += step.mean_bytes(shape, num_devices)
        seconds += step.seconds(shape, machine)
        peak = max(peak, step.buffer_bytes(shape))
        shape = step.result(shape)
    return PlannedSteps(steps, mean, seconds, math.ceil(peak), kernels_of(steps) * machine.launch if mean else 0.0)


def kernels_of(steps: Sequence[Step]) -> int:
    """Kernels that cut what is sent or has come, or pad it for a reduction, if no neighbour does that by the way.

    An exchange counts its own.
    """
    padded = sum(isinstance(a, Pad) and isinstance(b, ReduceScatter) for a, b in pairwise(steps))
    return padded + sum(isinstance(step, DynamicSlice) for step in steps)
