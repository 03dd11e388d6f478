"""The outcome of choosing, before anything is written: how one op is split, or how the elements it moves travel, and
what it costs between operands that lie so and what is wanted of its result.

Floor: partitioner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hlosharding.ir import Shape
from hlosharding.partitioner.prices import NOTHING, Cost, Prices
from hlosharding.partitioner.value import ValuePlace
from hlosharding.reshard import BatchedTransfer
from hlosharding.rules import Signature
from hlosharding.sharding import REPLICATED, HloSharding


class OpCost(NamedTuple):
    """Of one op."""

    communication: Cost = NOTHING
    computation: float = 0.0
    """Seconds, as far as they count beside those of bytes."""
    moved: frozenset[ValuePlace] = frozenset()
    """Values that are brought elsewhere whole: their partial results are not."""
    is_result_moved: bool = False

    def seconds(self, prices: Prices) -> float:
        """`comparable_seconds` of it all."""
        return prices.comparable_seconds(self.communication) + self.computation


@dataclass(slots=True)
class Moves:
    """Values brought into shardings, each once to each: from where it lies, or from where it was brought before."""

    prices: Prices
    communication: Cost = NOTHING
    brought: dict[ValuePlace, list[HloSharding]] = field(default_factory=dict[ValuePlace, list[HloSharding]])

    def bring(self, value: ValuePlace, target: HloSharding) -> None:
        """Add what it costs."""
        found = self.brought.get(value, [])
        # Of what was brought whole each device cuts any other tile for nothing.
        if value.is_free or value.sharding is target or target in found or REPLICATED in found:
            return
        costs = [self.prices.move_cost(value, source, target) for source in (value.sharding, *found)]
        self.communication += min(costs, key=self.prices.comparable_seconds)
        self.brought.setdefault(value, []).append(target)

    def cost(self, computation: float = 0.0, result: ValuePlace | None = None) -> OpCost:
        """Of all of them; `result`: which is the op's."""
        moved = frozenset(value for value in self.brought if value.reduce_kind is None)
        return OpCost(self.communication, computation, moved, result in moved)


@dataclass(frozen=True, slots=True)
class OpPlan(ABC):
    """How one op is partitioned: where its operands must lie, how its results come out, and at what price.

    >>> import hlosharding as hs
    >>> text = '''HloModule m, num_partitions=2
    ... ENTRY e {
    ...   x = f32[4,8] parameter(0), sharding={devices=[1,2]<=[2]}
    ...   y = f32[8,4] parameter(1), sharding={devices=[2,1]<=[2]}
    ...   ROOT z = f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
    ... }'''
    >>> plan = hs.partition(hs.load(text)).plans["z"]
    >>> [str(s) for s in plan.operands]
    ['{devices=[1,2]<=[2]}', '{devices=[2,1]<=[2]}']
    """

    operands: tuple[HloSharding, ...]
    """The sharding that each operand is brought into."""
    results: tuple[HloSharding, ...]
    """Per result leaf the sharding it comes out in, before it is brought to where it is wanted."""
    price: float
    """Seconds, as plans of one op are compared: of moving operands and results, and of computing."""

    @abstractmethod
    def cost(self, prices: Prices, operands: Sequence[ValuePlace], shape: Shape, wanted: HloSharding | None) -> OpCost:
        """What it comes to, of a result of this shape, where each value moves but once to each sharding."""


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
class Lowering(OpPlan):
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
    question: Any = field(repr=False)
    """What was to be chosen: a `factors.SplitQuestion`, for who asks what else there was."""

    def cost(self, prices: Prices, operands: Sequence[ValuePlace], shape: Shape, wanted: HloSharding | None) -> OpCost:
        choice, moves = self.choice, Moves(prices)
        for value, place in zip(operands, choice.operands, strict=True):
            moves.bring(value, place)
        made = ValuePlace(shape, choice.results[0], choice.reduce_kind, broadcast_dims=self.broadcast_dims[0])
        if choice.reduce_kind != "other":  # such an op combines its partial results itself
            moves.bring(made, wanted if wanted is not None else made.whole_sharding)
        # The choice priced each operand by itself, one that is read twice twice: its computation alone is taken over.
        return moves.cost(choice.seconds - choice.communication, made)


@dataclass(frozen=True, slots=True)
class ReshapePlan(OpPlan):
    """How a reshape is done: on tiles, or, where these do not hold the same elements, with elements moved between."""

    transfer: BatchedTransfer | None = None
    """Where elements move between unlike tile edges: how; else tiles are reshaped."""

    def cost(self, prices: Prices, operands: Sequence[ValuePlace], shape: Shape, wanted: HloSharding | None) -> OpCost:
        moves, made = Moves(prices), ValuePlace(shape, self.results[0])
        moves.bring(operands[0], self.operands[0])
        # A transfer ends in the tiles that are wanted: nothing is left to move behind it.
        if self.transfer is not None:
            moves.communication += Cost(self.transfer.mean_bytes, self.transfer.seconds)
        else:
            moves.bring(made, wanted if wanted is not None else self.results[0])
        return moves.cost(result=made)


@dataclass(frozen=True, slots=True)
class MovementPlan(OpPlan):
    """How an op that only moves elements is done."""

    transfer: BatchedTransfer
    communication: Cost
    """All of it: operands into place, the transfer, the result to what is wanted."""

    def cost(self, prices: Prices, operands: Sequence[ValuePlace], shape: Shape, wanted: HloSharding | None) -> OpCost:
        return OpCost(self.communication)
