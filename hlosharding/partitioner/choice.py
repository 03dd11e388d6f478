"""The outcome of choosing: how one op is split, or what it moves.

Floor: partitioner.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlosharding.ir import Shape
from hlosharding.partitioner.prices import Cost
from hlosharding.reshard import Transfer
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
    deferred: tuple[int, ...]
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
    readings: list[Signature]
    """What was chosen from, kept alive: the identity of signatures is part of the key."""
    is_plain: bool
    """Do operands enter the piece as they are?"""
    broadcast_dims: tuple[tuple[int, ...], ...]
    """Per result leaf the dims along which all elements are the same."""
    is_op_itself: bool
    """Is the piece, besides, one array made by the op itself on local operands, and nothing owed?"""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """How elements are moved: operands in `sources` become the result in `target`."""

    sources: tuple[HloSharding, ...]
    target: HloSharding
    transfer: Transfer
    cost: Cost
    """All of it: operands into place, the pieces, the result from `target` to what is wanted."""
