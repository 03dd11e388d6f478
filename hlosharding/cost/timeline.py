"""The events of a simulated run: what ran when, on which stream, and what it waited for.

Floor: cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hlosharding.ir import Instruction

Stream = Literal["compute", "communication"]
STREAMS: tuple[Stream, ...] = ("compute", "communication")


@dataclass(frozen=True, slots=True)
class Event:
    """One op (or a whole loop) on a stream; times in seconds from the start of the run."""

    instruction: Instruction
    stream: Stream
    start: float
    end: float
    cause: Event | None = field(repr=False)
    """The event that kept this one from starting earlier: an operand, or the op before it on its stream."""
    nbytes: float
    """Bytes received."""
    trips: int = 1
    """Of a loop: how often its body runs."""
    is_exact: bool = True
    """False where that is a guess."""
    joined: tuple[Instruction, ...] = ()
    """Collectives that run as one with `instruction`, as XLA's combiner leaves them."""

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All that runs then: one op, or collectives that are one."""
        return (self.instruction, *self.joined)

    @property
    def seconds(self) -> float:
        return self.end - self.start
