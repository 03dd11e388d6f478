"""A plan: how many ways a step is split by data, by tensors and into stages, and into how many microbatches.

Floor: search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hlosharding.schedule import Layout


@dataclass(frozen=True, slots=True, order=True)
class Plan:
    """Data, tensor and pipeline parallelism together: each stage's devices form a mesh [data, tensor].

    >>> print(Plan(4, 2, 2, 8), Plan(1, 8).num_devices)
    4/2/2/8 8
    """

    data: int = 1
    tensor: int = 1
    stages: int = 1
    microbatches: int = 1
    schedule: str = ""
    """As of `pipelined`; "": 1F1B of a training step."""

    def __str__(self) -> str:
        """D/T/P/K, as the DistIR paper writes it, and the schedule if it is said."""
        ways = f"{self.data}/{self.tensor}/{self.stages}/{self.microbatches}"
        return f"{ways} {self.schedule}" if self.schedule else ways

    @property
    def layout(self) -> Layout:
        """Into what the program is cut."""
        return Layout.of(self.stages, self.schedule)

    @property
    def num_devices(self) -> int:
        return self.data * self.tensor * self.stages


class SizedPlan(NamedTuple):
    """A plan for a step of so many examples.

    >>> SizedPlan(Plan(2, 1, 2, 4), 64).examples
    16
    """

    plan: Plan
    batch_size: int

    @property
    def examples(self) -> int:
        """Of a microbatch."""
        return self.batch_size // self.plan.microbatches

    @property
    def divides(self) -> bool:
        """Do all microbatches, and all their tiles, have as many examples?"""
        return not (self.batch_size % self.plan.microbatches or self.examples % self.plan.data)
