"""What a step takes with a plan, and which plans are worth a look for that.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hlosharding.cost import StepBreakdown
from hlosharding.schedule import ScheduleSimulation
from hlosharding.search.in_turn import Promise, promise
from hlosharding.search.plans import Plan, SizedPlan


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan, and what a step takes with it; every figure is of the device that works longest."""

    plan: Plan
    batch_size: int
    """Examples of a step."""
    time_s: float
    breakdown: StepBreakdown
    """Where it goes: idle is the bubble, and waiting for transfers."""
    peak_memory_bytes: float
    fits: bool
    """Does every device hold it?"""

    @classmethod
    def of(cls, plan: SizedPlan, run: ScheduleSimulation) -> PricedPlan:
        """From a simulated run of it."""
        longest = max(run.usage, key=lambda use: use.busy_s)
        return cls(*plan, run.time_s, longest.breakdown, run.peak_memory_bytes, run.fits)

    @property
    def compute_s(self) -> float:
        """In kernels, and waiting for their launches."""
        return self.breakdown.total_s - self.exposed_s - self.idle_s

    @property
    def exposed_s(self) -> float:
        """Communication inside stages that no computing hides."""
        return self.breakdown.exposed_s

    @property
    def idle_s(self) -> float:
        return self.breakdown.idle_s

    @property
    def promise(self) -> Promise:
        """By which it is compared with others, of other batches too."""
        return promise(fits=self.fits, seconds=self.time_s / self.batch_size, peak_bytes=self.peak_memory_bytes)

    @property
    def sized_plan(self) -> SizedPlan:
        """Plan and batch size."""
        return SizedPlan(self.plan, self.batch_size)


def sort_by_throughput(priced: Iterable[PricedPlan]) -> list[PricedPlan]:
    """By throughput, those that fit first."""
    return sorted(priced, key=lambda each: (not each.fits, each.time_s / each.batch_size, each.sized_plan))


def pareto(table: Iterable[PricedPlan]) -> list[PricedPlan]:
    """The plans than which no other takes less time an example and less memory, the fastest first.

    >>> from hlosharding.cost import StepBreakdown
    >>> def priced(plan, time_s, nbytes):
    ...     return PricedPlan(plan, 1, time_s, StepBreakdown(flops_s=time_s), nbytes, True)
    >>> plans = priced(Plan(4), 1.0, 9.0), priced(Plan(2, 2), 2.0, 9.0), priced(Plan(1, 4), 3.0, 5.0)
    >>> [str(each.plan) for each in pareto(plans)]
    ['4/1/1/1', '1/4/1/1']
    """
    found: list[PricedPlan] = []
    for each in sorted(table, key=lambda priced: (priced.time_s / priced.batch_size, priced.peak_memory_bytes)):
        if not found or each.peak_memory_bytes < found[-1].peak_memory_bytes:
            found.append(each)
    return found
