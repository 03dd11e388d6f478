"""Prices plans one after the other, but for those of which it is certain that they are not among the fastest.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import NamedTuple

from hlosharding.cost import Machine
from hlosharding.errors import HloShardingError
from hlosharding.search.batch_sizes import BatchSizes
from hlosharding.search.plan_prices import PlanPrices
from hlosharding.search.plans import SizedPlan
from hlosharding.search.price_file import Outcome
from hlosharding.search.priced_plan import PricedPlan


class Task(NamedTuple):
    """What is to be priced."""

    plan: SizedPlan
    bound: float
    """Seconds that a step takes at least."""
    known: Outcome | None
    """What became of it already."""


Answer = tuple[SizedPlan, Outcome | None]
"""None: not among the fastest."""


class Pricer:
    """`most`: how many of the fastest are looked for; None: all."""

    def __init__(self, sizes: BatchSizes, machine: Machine, most: int | None) -> None:
        self._prices = PlanPrices(sizes, (), machine)
        self._most = most
        self._times: list[float] = []
        """Of the fastest that fit, as many as are looked for."""

    def price(self, tasks: Sequence[Task]) -> Iterator[Answer]:
        """In this order."""
        self._prices.expect(task.plan for task in tasks)
        for plan, bound, known in tasks:
            # Known prices are left out likewise, so that a search that goes on ends as one that was not interrupted.
            outcome = None if bound > self._worst_kept() else known or self._find_outcome(plan)
            if self._most is not None and isinstance(outcome, PricedPlan) and outcome.fits:
                self._times = nsmallest(self._most, [*self._times, outcome.time_s])
            yield plan, outcome

    def _worst_kept(self) -> float:
        """Plans that take longer are not among the fastest."""
        # No length is None: where all are wanted none is left out.
        return self._times[-1] if len(self._times) == self._most else float("inf")

    def _find_outcome(self, plan: SizedPlan) -> Outcome:
        try:
            return PricedPlan.of(plan, self._prices.simulate(plan))
        except HloShardingError as error:
            return str(error)
