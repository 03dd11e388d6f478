"""What each other choice costs: no plan of the table that chooses otherwise is better than the one that is named."""

from __future__ import annotations

from dataclasses import fields
from random import Random

import pytest

from hlosharding.cost import StepBreakdown
from hlosharding.search import Plan, PricedPlan, plan_space
from hlosharding.search.comparison import EQUAL, runners_up
from hlosharding.search.priced_plan import sort_by_throughput

PLANS = list(plan_space(16, (4, 8), strategies=("", "fsdp", "zero1"), replicas=(1, 2), sequence=(False, True)))


def priced(plan: Plan, time_s: float, nbytes: float = 1e9, memory: float = 8e10) -> PricedPlan:
    return PricedPlan(plan, 64, time_s, StepBreakdown(flops_s=time_s), nbytes, nbytes <= memory)


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_that_chooses_otherwise_is_better(seed: int) -> None:
    random = Random(seed)
    plans = random.sample(PLANS, 20)
    table = sort_by_throughput(priced(plan, random.uniform(1, 2), random.uniform(1e9, 1e11)) for plan in plans)
    found = {choice: one.priced for one in runners_up(table) for choice in one.choices}
    for name in (field.name for field in fields(Plan)):
        others = [each for each in table[1:] if getattr(each.plan, name) != getattr(table[0].plan, name)]
        assert (name in found) is bool(others)
        if others:
            best = min(others, key=lambda each: (not each.fits, each.time_s))
            assert getattr(found[name].plan, name) != getattr(table[0].plan, name)
            assert (found[name].fits, found[name].time_s <= EQUAL * best.time_s) == (best.fits, True)


def test_of_equal_plans_the_nearest_says_what_a_choice_costs() -> None:
    table = [
        priced(Plan.parse(text), seconds)
        for text, seconds in (("8/1/1/1 fsdp", 1.0), ("4/2/1/1", 1.2), ("4/2/1/1 fsdp", 1.205))
    ]
    [strategy, ways] = runners_up(table)
    assert (strategy.choices, str(strategy.priced.plan)) == (("strategy",), "4/2/1/1")
    assert (ways.choices, str(ways.priced.plan)) == (("data", "tensor"), "4/2/1/1 fsdp")


def test_what_does_not_fit_is_named_only_where_nothing_else_chooses_so() -> None:
    lean, large = priced(Plan(4, 2), 3.0), priced(Plan(8, strategy="zero1"), 0.5, 9e10)
    found = runners_up([priced(Plan(8, strategy="fsdp"), 1.0), lean, large])
    assert {str(one.priced.plan): one.choices for one in found} == {"4/2/1/1": ("data", "tensor", "strategy")}
    [alone] = runners_up([priced(Plan(8, strategy="fsdp"), 1.0), large])
    assert (
        str(alone)
        == "other strategy: 8/1/1/1 zero1 takes 500 ms, 0.50 times as long (-500 ms computing), 90 GB, does not fit"
    )


def test_plans_of_another_batch_are_left_out() -> None:
    other = PricedPlan(Plan(4, 2), 128, 2.0, StepBreakdown(flops_s=2.0), 1e9, True)
    assert runners_up([priced(Plan(8), 1.0), other]) == []
