"""Steps with their price: bytes received, seconds, memory.

Floor: reshard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlosharding.cost import Machine
from hlosharding.ir import Shape
from hlosharding.reshard.objectives import Figures, weigh
from hlosharding.reshard.steps import Step

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

    @property
    def figures(self) -> Figures:
        """What it is compared by."""
        return Figures(self.seconds, self.mean_bytes, len(self.steps), self.peak_bytes)

    def cost(self, objective: str) -> float:
        """What the objective minimises."""
        return weigh(objective, self.mean_bytes, self.seconds)

    def fits(self, memory_limit: int | None) -> bool:
        """Does a device with so many bytes hold what is alive at once?"""
        return memory_limit is None or self.peak_bytes <= memory_limit


def price_steps(steps: Steps, local: Shape, num_devices: int, machine: Machine) -> PlannedSteps:
    """The price of steps that start from local arrays `local`.

    >>> from hlosharding.cost import machines
    >>> price_steps((), Shape.parse("f32[8]"), 4, machines.h100(4)).peak_bytes
    32
    """
    mean, seconds, peak, shape = 0.0, 0.0, local.byte_size, local
    for step in steps:
        mean += step.mean_bytes(shape, num_devices)
        seconds += step.seconds(shape, machine)
        peak = max(peak, step.buffer_bytes(shape))
        shape = step.result(shape)
    return PlannedSteps(steps, mean, seconds, math.ceil(peak))
