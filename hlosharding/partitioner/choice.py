"""The outcome of choosing: how one op is split, or how the elements it moves are transferred.

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
class FactorChoice:
    """How one op is split along the factors of a signature."""

    signature: Signature
    """The op's rule, or an alternative signature of the op."""
    space: HloSharding
    """The sharding of the op's iteration space, one data dim per factor."""
    operands: tuple[HloSharding, ...]
    """The sharding that each operand must have."""
    results: tuple[HloSharding, ...]
    """Per result leaf the sharding it comes out in; with an unreduced subgroup where it is a partial result."""
    deferred: tuple[int, ...]
    """Factors split along which the devices' results are partial."""
    reduce_kind: str | None
    """By what partial results are combined; None where there are none."""
    fetching: float
    """Seconds of bringing operands into place."""
    communication: float
    """Those, and of bringing results into place."""
    seconds: float
    """Its price: those, and of the computation."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """A choice with all that follows from it alone, so that equal ops only fill in their operands."""

    choice: FactorChoice
    shapes: tuple[Shape, ...]
    """Local shape of each result leaf."""
    masked: tuple[tuple[int, ...], ...]
    """Per operand the uneven dims whose padding must be masked."""
    is_plain: bool
    """Do operands enter the local op as they are?"""
    broadcast_dims: tuple[tuple[int, ...], ...]
    """Per result leaf the dims along which all elements are the same."""
    is_op_itself: bool
    """Is the local op, besides, the op itself, its result one array, and nothing to be reduced?"""


@dataclass(frozen=True, slots=True)
class MovementPlan:
    """How an op that only moves elements is done: operands in `sources` become the result in `target`."""

    sources: tuple[HloSharding, ...]
    target: HloSharding
    transfer: Transfer
    cost: Cost
    """All of it: operands into place, the transfer, the result from `target` to what is wanted."""
