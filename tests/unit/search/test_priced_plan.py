"""Time against memory: who is on the front."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlosharding.cost import StepBreakdown
from hlosharding.search import Plan, PricedPlan, pareto

FIGURES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=12)


def priced(number: int, time_s: float, nbytes: float) -> PricedPlan:
    return PricedPlan(Plan(data=number + 1), 1, time_s, StepBreakdown(flops_s=time_s), nbytes, True)


@given(FIGURES)
def test_nobody_is_better_than_who_is_on_the_front_and_somebody_than_all_others(figures: list[tuple[int, int]]) -> None:
    table = [priced(number, *each) for number, each in enumerate(figures)]
    front = pareto(table)
    for each in table:
        better = [
            other
            for other in table
            if other.time_s <= each.time_s
            and other.peak_memory_bytes <= each.peak_memory_bytes
            and (other.time_s, other.peak_memory_bytes) != (each.time_s, each.peak_memory_bytes)
        ]
        alike = [o for o in front if (o.time_s, o.peak_memory_bytes) == (each.time_s, each.peak_memory_bytes)]
        assert bool(alike) is not bool(better)
