"""The outcome of choosing: how one op is split.

Floor: partitioner.
"""

from __future__ import annotations

from dataclasses import dataclass

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
