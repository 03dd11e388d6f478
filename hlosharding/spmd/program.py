"""What all emitters of one per-device program share: its builder, channel ids, scalar computations, notes on values.

Floor: spmd.  Emitters change it; it makes no instructions but those of scalar computations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hlosharding.ir import Builder, Computation, ComputationBuilder, Instruction
from hlosharding.spmd.participants import Groups
from hlosharding.spmd.scalar_computations import ScalarComputations


@dataclass(slots=True)
class PartialSums:
    """Instructions that hold partial sums whose reduction was deferred, and who may read them before it.

    The verifier demands that nobody else reads them, and that no sum is reduced twice.
    """

    values: set[Instruction] = field(default_factory=set)
    """On each device a partial sum of the value that is meant."""
    readers: set[Instruction] = field(default_factory=set)
    """What was written to reduce them, or to hand them on as they are."""


class Mark(NamedTuple):
    """How much of a program was there at some moment; `Program.back_to` goes back to it."""

    bodies: int
    warnings: int
    undecided: int


@dataclass(slots=True)
class Program:
    """What all emitters of one module share."""

    builder: Builder
    num_partitions: int
    warnings: list[str] = field(default_factory=list)
    """What the user should know: of values computed whole on every device, of bytes that this costs."""
    channel: int = 0
    """The largest channel id in use."""
    partial_sums: PartialSums = field(default_factory=PartialSums)
    bodies: list[Computation] = field(default_factory=list)
    """Computations of loops, branches and calls, in the order in which they were begun."""
    synced_conditions: dict[Instruction, Groups] = field(default_factory=dict)
    """Loops and branches on whose condition the devices of each group must agree: it is synchronised among them where
    the uniformity analysis cannot show that they do."""
    undecided: dict[Instruction, Any] = field(default_factory=dict)
    """What became of values that had no sharding to take, or were partial sums at first."""
    annotated: dict[Instruction, Any] = field(default_factory=dict)
    """What became of values that the user annotated."""
    scalars: ScalarComputations = field(init=False)
    """Reducers and comparators."""

    def __post_init__(self) -> None:
        self.scalars = ScalarComputations(self.builder)

    def body(self, name: str) -> ComputationBuilder:
        """A computation that `back_to` can take back."""
        made = self.builder.computation(name)
        self.bodies.append(made.computation)
        return made

    def mark(self) -> Mark:
        """Where we are."""
        return Mark(len(self.bodies), len(self.warnings), len(self.undecided))

    def back_to(self, mark: Mark) -> None:
        """Forget the bodies begun since `mark`, and the warnings and values that came with them."""
        for computation in self.bodies[mark.bodies :]:
            self.builder.drop(computation)
        del self.bodies[mark.bodies :], self.warnings[mark.warnings :]
        for inst in list(self.undecided)[mark.undecided :]:
            del self.undecided[inst]

    def next_channel(self) -> int:
        """A channel id no other collective has."""
        self.channel += 1
        return self.channel
