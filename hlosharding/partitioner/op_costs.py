"""What an op costs by its plan, between operands that lie so and what is wanted of its result.

Floor: partitioner.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hlosharding.partitioner.prices import NOTHING, Cost, Prices
from hlosharding.partitioner.value import ValuePlace
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
        if value.is_free or value.sharding is target or target in found or REPLICATED in found:
            return
        costs = [self.prices.move_cost(value, source, target) for source in (value.sharding, *found)]
        self.communication += min(costs, key=self.prices.comparable_seconds)
        self.brought.setdefault(value, []).append(target)

    def cost(self, computation: float = 0.0, result: ValuePlace | None = None) -> OpCost:
        """Of all of them; `result`: which is the op's."""
        moved = frozenset(value for value in self.brought if value.reduce_kind is None)
        return OpCost(self.communication, computation, moved, result in moved)
