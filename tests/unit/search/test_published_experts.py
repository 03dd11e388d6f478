"""Plans of decoders with experts, dense and sorted dispatch, layers in a scan and listed: each computes what one device
does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.published.experts import Experts
from hlosharding.errors import ScheduleError
from hlosharding.search import Plan
from tests.support.published_steps import BATCH, SMALL, step_of, weight_bytes

MIXTRAL = replace(SMALL, layers=2, experts=Experts(count=4, chosen=2, hidden=32))
DEEPSEEK = Experts(count=8, chosen=3, hidden=16, shared=2, dense_layers=1, dispatch="sorted")
SORTED = replace(MIXTRAL, layers=3, experts=DEEPSEEK)
FORMS = {
    "dense scanned": MIXTRAL,
    "dense listed": MIXTRAL.listed(),
    "sorted scanned": SORTED,
    "sorted listed": SORTED.listed(),
}
PLANS = (
    Plan(8, strategy="fsdp"),
    Plan(4, 2, strategy="fsdp"),
    Plan(8, strategy="zero2"),
    Plan(2, 2, 2),
)
MICROBATCHED = (Plan(4, 2, microbatches=2), Plan(4, 1, 2, 2, strategy="fsdp"))
OF_SLOTS = (
    *MICROBATCHED,
    Plan(8, experts=4),
    Plan(4, 2, strategy="fsdp", experts=2, sequence=True),
    Plan(4, 1, 2, 2, strategy="zero1", experts=4),
)
CASES = [(form, plan) for form in FORMS for plan in (*PLANS, *(OF_SLOTS if "dense" in form else ()))]


@pytest.mark.parametrize(("form", "plan"), CASES, ids=str)
def test_a_plan_computes_what_one_device_does(form: str, plan: Plan, cpu_devices: list[Any]) -> None:
    step_of(FORMS[form]).check(plan, cpu_devices)


@pytest.mark.parametrize("form", ["sorted scanned", "sorted listed"])
def test_tokens_sorted_over_the_whole_batch_take_one_microbatch(form: str) -> None:
    """Where a token's row lies depends on the tokens of all sequences."""
    with pytest.raises(ScheduleError, match="one microbatch"):
        step_of(FORMS[form]).planner.schedule(MICROBATCHED[0])


def test_where_no_product_has_one_for_each_expert_a_plan_of_experts_is_refused() -> None:
    """`jax.lax.ragged_dot` sums over them, all but one of which a mask leaves out."""
    with pytest.raises(ScheduleError, match="no weight has a dim of experts"):
        step_of(SORTED).planner.schedule(Plan(4, experts=4))


@pytest.mark.parametrize("form", ["dense scanned", "dense listed"])
def test_fsdp_gathers_weights_twice_and_reduces_gradients_once(form: str) -> None:
    """As of dense layers: a group of the dispatch is a sequence, so no activation moves."""
    moved = step_of(FORMS[form]).received(Plan(8, strategy="fsdp"))
    assert 0.95 < moved / (3 * 7 / 8 * weight_bytes(FORMS[form])) < 1.01


@pytest.mark.parametrize("form", ["dense scanned", "dense listed"])
def test_tokens_go_to_their_experts_and_back(form: str) -> None:
    """Expert parallelism: slots of all experts are exchanged on the way there and back, in both passes and when a layer
    is computed again; weights of experts stay, gradients of all others are reduced."""
    config, devices = FORMS[form], 4
    experts = config.experts
    slots = experts.count * int(experts.capacity * config.length * experts.chosen / experts.count)
    exchanged = 6 * config.layers * 4 * BATCH // devices * slots * config.width * (devices - 1) / devices
    routed = 4 * config.layers * 3 * experts.count * config.width * experts.hidden
    reduced = 2 * (weight_bytes(config) - routed) * (devices - 1) / devices
    moved = step_of(config).received(Plan(devices, experts=devices))
    assert moved == pytest.approx(exchanged + reduced, rel=0.01)
