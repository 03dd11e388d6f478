"""Writes ops into one local computation, each once: equal ops on equal operands are one instruction.

Floor: spmd.  The only place of the partitioner where instructions are made.  Equal collectives merge here by
themselves, as after the HloCSE that ends XLA's partitioning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlosharding.ir import MAY_ACT, Computation, ComputationBuilder, Instruction, Shape, stated_of
from hlosharding.spmd.collective import CAUSE_ATTRIBUTE
from hlosharding.spmd.program import Program

# A barrier is there to keep what is behind it apart.
_NEVER_MERGED = frozenset({"opt-barrier"})


@dataclass(slots=True)
class OpOrigin:
    """For what ops are made."""

    source: Instruction | None = None
    """The global instruction: they carry its metadata."""
    reason: str = "reshard"
    """Why collectives are made for it."""

    def __str__(self) -> str:
        """As collectives name it."""
        return "" if self.source is None else f"{self.reason} for %{self.source.name} ({self.source.opcode})"


class OpWriter:
    """Appends ops to one local computation, on behalf of one global instruction at a time (`lowering`)."""

    def __init__(self, program: Program, computation: ComputationBuilder) -> None:
        self.program = program
        self.computation = computation
        self.cause = OpOrigin()
        self._made: dict[tuple[Any, ...], Instruction] = {}
        """Ops of our own, by opcode, shape, operands, callees and attributes."""
        self._copied: dict[tuple[Any, ...], tuple[Instruction, Instruction]] = {}
        """Ops of the program, likewise: (the global instruction, the local one)."""

    @property
    def written(self) -> int:
        """How many instructions stand in the computation."""
        return len(self.computation.computation.instructions)

    def note_partial_sums(self, partial_sums: Instruction, since: int) -> None:
        """Note who holds partial sums; all but the first `since` instructions reduce them or hand them on."""
        self.program.partial_sums.values.add(partial_sums)
        self.program.partial_sums.readers.update(self.computation.computation.instructions[since:])

    def lowering(self, source: Instruction, reason: str = "reshard") -> None:
        """From now on ops are made for `source`: they carry its metadata, and collectives name it as their cause."""
        self.cause.source, self.cause.reason = source, reason

    @contextmanager
    def on_behalf_of(self, source: Instruction | None, reason: str = "reshard") -> Iterator[None]:
        """As `lowering`, until the block ends."""
        cause = self.cause
        before = cause.source, cause.reason
        cause.source, cause.reason = source, reason
        try:
            yield
        finally:
            cause.source, cause.reason = before

    def because(self, reason: str) -> AbstractContextManager[None]:
        """Until the block ends, why collectives are made for the instruction that is being lowered."""
        return self.on_behalf_of(self.cause.source, reason)

    def op(
        self,
        opcode: str,
        shape: Shape,
        operands: Sequence[Instruction],
        *,
        called: Sequence[Computation] = (),
        **attrs: Any,
    ) -> Instruction:
        """A helper op; the same op on the same operands is returned again instead of made twice."""
        named = tuple(sorted(attrs.items())) if len(attrs) > 1 else tuple(attrs.items())
        key = (opcode, shape, tuple(operands), tuple(called), named)
        found = self._made.get(key)
        if found is None:
            found = self.computation.add(opcode, shape, operands, metadata_of=self.cause.source, called=called, **attrs)
            self._made[key] = found
        return found

    def local(
        self,
        source: Instruction,
        shape: Shape,
        operands: Sequence[Instruction],
        *,
        opcode: str | None = None,
        **attrs: Any,
    ) -> Instruction:
        """The op of the global instruction `source`, on local operands; attributes given replace the global ones."""
        called = tuple([self.program.scalars.copy(c) for c in source.called]) if source.called else ()
        opcode, operands = opcode or source.opcode, tuple(operands)
        if opcode in _NEVER_MERGED or self._acts(source, called):
            return self.computation.add(opcode, shape, operands, like=source, called=called, **attrs)
        # Of ops without operands, such as an iota, attributes are all that tells one from another.
        key: tuple[Any, ...] = (opcode, shape, operands or stated_of(source), called)
        if attrs:
            key = (*key, tuple(sorted(attrs.items())))
        known = self._copied.get(key)
        # Nearly all ops with equal keys are equal: attributes are compared only then.
        if known is not None and not _have_equal_attributes(known[0], source):
            key = (*key, "and", stated_of(source))
            known = self._copied.get(key)
        if known is None:
            write = self.computation
            made = (
                write.add(opcode, shape, operands, like=source, called=called, **attrs)
                if attrs
                else write.add_like(source, opcode, shape, operands, called, source.name)
            )
            known = self._copied[key] = source, made
        return known[1]

    def _acts(self, source: Instruction, called: tuple[Computation, ...]) -> bool:
        """Has an op that calls copies of its computations a side effect?"""
        if source.opcode in MAY_ACT:
            return source.has_side_effect
        return bool(called) and any(map(self.program.scalars.acts, called))

    def constant(self, value: Any) -> Instruction:
        """A constant of a numpy scalar or array."""
        array = np.asarray(value)
        # By name, too: most eight-bit floats of ml_dtypes have one and the same `str`.  By bytes, which tell -0 from 0.
        key = ("constant", array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = self.computation.constant(array, metadata_of=self.cause.source)
        return self._made[key]

    def collective(self, opcode: str, shape: Shape, x: Instruction, key: Any, **attrs: Any) -> Instruction:
        """A collective with a channel of its own and its cause; `key` says what tells it from others on `x`."""
        key = (opcode, shape, x, key)
        if key not in self._made:
            if self.cause.source is not None:
                attrs["frontend_attributes"] = {CAUSE_ATTRIBUTE: str(self.cause)}
            self._made[key] = self.computation.add(
                opcode, shape, (x,), metadata_of=self.cause.source, channel_id=self.program.next_channel(), **attrs
            )
        return self._made[key]


def _have_equal_attributes(one: Instruction, other: Instruction) -> bool:
    return one.proto is other.proto or stated_of(one) == stated_of(other)
