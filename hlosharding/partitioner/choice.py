"""The outcome of choosing: how one op is split.

Floor: partitioner.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlosharding.ir import Shape
from hlosharding.rules import Signature
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class Choice:
    """How one op is split."""

    signature: Signature
    """The truth that was split: the op's rule, or another reading of the op."""
    space: HloSharding
    """The sharding of the op's iteration space, one data dim per factor."""
    operands: tuple[HloSharding, ...]
    results: tuple[HloSharding, ...]
    """Per result leaf; with an unreduced subgroup where something is owed."""
    owed: tuple[int, ...]
    """Factors split whose pieces must be combined."""
    reduce_kind: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Lowering:
    """A choice with all that follows from it alone, so that equal ops only fill in their operands."""

    choice: Choice
    shapes: tuple[Shape, ...]
    """Local shape of each result leaf."""
    masked: tuple[tuple[int, ...], ...]
    """Per operand the uneven dims whose padding must be masked."""
    rule: Signature
    """The op's own signature, kept alive: its identity is part of the key."""

    @property
    def is_plain(self) -> bool:
        """True when operands enter the piece as they are."""
        return not self.choice.owed and not any(self.masked)
