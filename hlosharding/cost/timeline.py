"""The events of a simulated run: what ran when, on which stream, and what it waited for.

Floor: cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from hlosharding.ir import Instruction

Stream = Literal["compute", "communication", "host"]
STREAMS: tuple[Stream, ...] = ("compute", "communication", "host")
"""`host`: moves to the host's memory, and back."""


def streams_of(timeline: Iterable[Event]) -> tuple[Stream, ...]:
    """Those that a run has: the last only where something is moved."""
    return STREAMS if any(event.stream == "host" for event in timeline) else STREAMS[:2]


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
