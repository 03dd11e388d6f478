"""Searchers: what they have priced, where they end, and who is asked where nobody is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from benchmarks.published.transformer import LLAMA_8B, arguments, train_step
from hlosharding.cost import StepBreakdown, machines
from hlosharding.errors import ScheduleError
from hlosharding.search import Climb, Grid, Plan, PricedPlan, SearchSpace, SizedPlan, plan_space
from hlosharding.search.planner import Planner
from hlosharding.search.price_file import Outcome
from hlosharding.search.searchers import choose_searcher, first_plans, next_plans
from tests.support.training_steps import perceptron

H100 = machines.h100(16)
SHAPES = [jax.ShapeDtypeStruct((64, 64), jnp.float32)] * 3, jax.ShapeDtypeStruct((64, 64), jnp.float32)


@dataclass
class Hill:
    """Prices by a formula: seconds of a plan, and whether it fits."""

    peak: Plan
    told: list[SizedPlan] = field(default_factory=list)

    def price(self, plans: Sequence[SizedPlan]) -> dict[SizedPlan, Outcome | None]:
        self.told += plans
        return {each: self._priced(each) for each in plans}

    def _priced(self, sized: SizedPlan) -> Outcome:
        plan, peak = sized.plan, self.peak
        away = sum(
            abs(a.bit_length() - b.bit_length()) for a, b in zip(self._counts(plan), self._counts(peak), strict=True)
        )
        away += (plan.strategy != peak.strategy) + (plan.sequence != peak.sequence) + (plan.schedule != peak.schedule)
        return PricedPlan(plan, sized.batch_size, 1 + away / 20, StepBreakdown(), 1.0, fits=True)

    def _counts(self, plan: Plan) -> tuple[int, ...]:
        return plan.data, plan.tensor, plan.stages, plan.microbatches, plan.replicas, plan.context


def space(batch_size: int = 1024) -> SearchSpace:
    planner = Planner(hs.trace(perceptron)(*SHAPES), ["x"])
    return SearchSpace(planner, H100, batch_size, [SizedPlan(p, batch_size) for p in plan_space(16, (4,))])


@pytest.mark.parametrize(
    "peak",
    [
        Plan(16, strategy="fsdp", replicas=4),
        Plan(2, 8, strategy="zero1", sequence=True),
        Plan(4, 4),
        Plan(2, 2, 4, 32, strategy="zero1", sequence=True),
        Plan(8, 1, 2, 8, "1f1b-x2", strategy="fsdp"),
        Plan(16, strategy="fsdp", context=4),
    ],
    ids=str,
)
def test_steps_lead_to_the_top_from_wherever_they_begin(peak: Plan) -> None:
    hill = Hill(peak)
    Climb(400).search(space(), hill.price)
    assert min(hill.told, key=lambda each: hill._priced(each).time_s).plan == peak


@dataclass
class Narrow(Hill):
    """Nothing fits but one number of stages, which is far from first thoughts; the fastest plans need most."""

    def _priced(self, sized: SizedPlan) -> Outcome:
        plan, found = sized.plan, super()._priced(sized)
        assert isinstance(found, PricedPlan)
        return replace(found, fits=plan.stages == 16, peak_memory_bytes=plan.data + plan.tensor)


def test_as_long_as_nothing_fits_steps_lead_to_less_memory() -> None:
    tight = Narrow(Plan(16))
    Climb(60).search(space(), tight.price)
    assert any(each.plan.stages == 16 for each in tight.told)


def test_no_plan_is_priced_twice_and_no_more_than_was_said() -> None:
    for most in (3, 10, 40):
        hill = Hill(Plan(1, 1, 16, 64))
        Climb(most).search(space(), hill.price)
        assert len(hill.told) == len(set(hill.told)) == most


def test_plans_that_no_step_of_the_batch_can_have_are_not_asked_for() -> None:
    hill = Hill(Plan(16))
    Climb(60).search(space(batch_size=24), hill.price)
    assert hill.told
    assert all(each.plan.divides(24) and each.plan.experts == 1 for each in hill.told)


@pytest.mark.parametrize("devices", [1, 2, 6, 8, 64, 384])
def test_all_plans_are_for_all_devices(devices: int) -> None:
    machine = machines.h100(devices)
    first = list(first_plans(machine))
    steps = [step for plan in first for step in next_plans(plan, machine)]
    assert first
    assert {plan.num_devices for plan in (*first, *steps)} == {devices}
    assert all(plan.tensor <= machine.devices_per_node for plan in (*first, *steps))


def test_from_any_plan_a_step_leads_back() -> None:
    ways = [(d, t, 16 // d // t) for d, t in product((1, 2, 4, 8, 16), repeat=2) if d * t in (1, 2, 4, 8, 16)]
    plans = [Plan(d, t, p, 1 if p == 1 else 4 * p, strategy="fsdp", sequence=t > 1) for d, t, p in ways if t <= 8]
    for plan in plans:
        for step in next_plans(plan, H100):
            again = {(p.data, p.tensor, p.stages, p.replicas, p.context, p.experts) for p in next_plans(step, H100)}
            mine = plan.data, plan.tensor, plan.stages, plan.replicas, plan.context, plan.experts
            assert mine in again


def test_who_is_asked() -> None:
    assert isinstance(choose_searcher(None, []), Climb)
    assert isinstance(choose_searcher(None, ["batch"]), Grid)
    own = Climb(3)
    assert choose_searcher(own, ["batch"]) is own
    with pytest.raises(ScheduleError, match="plans, replicas are said, and a searcher that chooses plans by itself"):
        choose_searcher(own, ["plans", "batch", "replicas"])


def test_a_search_of_which_nothing_is_said_is_as_good_as_the_plans_that_people_run() -> None:
    config = replace(LLAMA_8B, layers=4)
    given = partial(train_step, config), *arguments(config, 64)
    options = {"machine": machines.h100(16), "donate": ["weights", "moments"], "progress": False}
    found = hs.search(*given, **options)
    known = [Plan(16, strategy="fsdp"), Plan(16, strategy="zero1"), Plan(2, 8, strategy="fsdp", sequence=True)]
    named = hs.search(*given, batch=["tokens"], plans=known, prune=False, **options)
    assert found.best.num_devices == 16
    assert found.table[0].time_s <= min(each.time_s for each in named.table if each.fits)
    assert len(found.table) <= Climb().most


@pytest.mark.parametrize(("devices", "rows"), [(64, 3), (6, 7), (1, 4)])
def test_where_no_first_thought_fits_others_are_tried(devices: int, rows: int) -> None:
    given = SHAPES[0], jax.ShapeDtypeStruct((rows, 64), jnp.float32)
    found = hs.search(perceptron, *given, machine=machines.h100(devices), progress=False, searcher=Climb(6))
    assert found.best.divides(rows)
    assert found.best.num_devices == devices


def test_users_bring_their_own() -> None:
    class Two:
        def search(self, space: SearchSpace, price: object) -> None:
            assert callable(price)
            first = price([SizedPlan(Plan(2), space.batch_size)])
            assert [str(each.plan) for each in first] == ["2/1/1/1"]
            price([SizedPlan(Plan(1, 2), space.batch_size)])

    found = hs.search(perceptron, *SHAPES, searcher=Two(), machine=machines.h100(2), progress=False)
    assert {str(each.plan) for each in found.table} == {"2/1/1/1", "1/2/1/1"}
