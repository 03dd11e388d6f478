"""Time against memory: the plans than which no other is better in both.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlosharding.search.priced_plan import PricedPlan


def pareto(table: Iterable[PricedPlan]) -> list[PricedPlan]:
    """The plans than which no other takes less time an example and less memory, the fastest first.

    >>> from hlosharding.cost import StepBreakdown
    >>> from hlosharding.search import Plan
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
