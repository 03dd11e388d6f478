"""What all emitters of one per-device program share: its builder, channel ids, scalar computations, notes on values.

Floor: spmd.  Emitters change it; it makes no instructions but those of scalar computations: reducers that
collectives need, and those of the user's ops, taken over; equal ones are one, whatever their instructions are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hlosharding.ir import Builder, Computation, ComputationBuilder, Instruction, Sameness, Shape
from hlosharding.spmd.participants import Groups


class ScalarComputations:
    """The computations on scalars of one program."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._reducers: dict[tuple[str, str], Computation] = {}
        self._copies: dict[Computation, Computation] = {}
        self._sameness, self._copied = Sameness(), dict[int, Computation]()
        self._acts: dict[Computation, bool] = {}

    def reducer(self, kind: str, element_type: str) -> Computation:
        """The scalar computation `kind(a, b)`, made once per element type."""
        key = (kind, element_type)
        if key not in self._reducers:
            body = self._builder.computation(f"{kind}_{element_type}")
            shape = Shape.array(element_type)
            a, b = body.parameter(0, shape, name="a"), body.parameter(1, shape, name="b")
            body.root(body.add(kind, shape, (a, b)))
            self._reducers[key] = body.computation
        return self._reducers[key]

    def copy(self, source: Computation) -> Computation:
        """A computation of scalars (a reducer, a comparator), taken over as it is; equal ones become one."""
        if source not in self._copies:
            called = {c: self.copy(c) for i in source.instructions for c in i.called}
            same = self._sameness.computation(source)
            if same not in self._copied:
                self._copied[same] = self._copy(source, called)
            self._copies[source] = self._copied[same]
        return self._copies[source]

    def acts(self, copied: Computation) -> bool:
        """Has any op of a computation that `copy` made a side effect?"""
        known = self._acts.get(copied)
        if known is None:
            known = self._acts[copied] = any(i.has_side_effect for i in copied.instructions)
        return known

    def _copy(self, source: Computation, called: Mapping[Computation, Computation]) -> Computation:
        body = self._builder.computation(source.name)
        made: dict[Instruction, Instruction] = {}
        for i in source.instructions:
            operands = [made[o] for o in i.operands]
            if i.opcode == "copy":  # what is left of an annotation, which means nothing here
                made[i] = operands[0]
                continue
            made[i] = body.add(i.opcode, i.shape, operands, like=i, called=[called[c] for c in i.called])
        body.root(made[source.root])
        return body.computation


@dataclass(slots=True)
class PartialSums:
    """Instructions that hold partial sums whose reduction was deferred, and who may read them before it.

    The verifier demands that nobody else reads them, and that no sum is reduced twice.
    """

    values: set[Instruction] = field(default_factory=set)
    """On each device a partial sum of the value that is meant."""
    readers: set[Instruction] = field(default_factory=set)
    """What was written to reduce them, or to hand them on as they are."""


Mark = tuple[int, int, int]
"""How many bodies, warnings and undecided values of a program were there at some moment."""


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
        return len(self.bodies), len(self.warnings), len(self.undecided)

    def back_to(self, mark: Mark) -> None:
        """Forget the bodies begun since `mark`, and the warnings and values that came with them."""
        bodies, warnings, undecided = mark
        for computation in self.bodies[bodies:]:
            self.builder.drop(computation)
        del self.bodies[bodies:], self.warnings[warnings:]
        # Dicts keep the order of entry: what came since the mark stands last.
        for inst in list(self.undecided)[undecided:]:
            del self.undecided[inst]

    def next_channel(self) -> int:
        """A channel id no other collective has."""
        self.channel += 1
        return self.channel
