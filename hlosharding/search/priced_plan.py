"""What a step takes with a plan.

Floor: search.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlosharding.schedule import Estimate
from hlosharding.search.plans import Plan


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan, and what a step takes with it; every figure is of the device that works longest."""

    plan: Plan
    time_s: float
    compute_s: float
    exposed_s: float
    """Communication inside stages that no computing hides."""
    idle_s: float
    """The bubble, and waiting for transfers."""
    peak_memory_bytes: float
    fits: bool
    """Does every device hold it?"""

    @classmethod
    def of(cls, plan: Plan, run: Estimate) -> PricedPlan:
        """From a simulated run of it."""
        longest = max(run.usage, key=lambda use: use.busy_s)
        return cls(
            plan,
            run.time_s,
            longest.busy_s - longest.exposed_s,
            longest.exposed_s,
            longest.idle_s,
            run.peak_memory_bytes,
            run.peak_memory_bytes <= run.machine.memory_bytes,
        )
