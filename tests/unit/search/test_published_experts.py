"""Plans of decoders with experts, dense and sorted dispatch, layers in a scan and listed: each computes what one device
does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.published.experts import Experts
from hlosharding.errors import ScheduleError
from hlosharding.search import Plan
from tests.support.published_steps import BATCH, SMALL, step_of, weight_bytes

MIXTRAL = replace(SMALL, layers=2, experts=Experts(count=4, chosen=2, hidden=32))
DEEPSEEK = Experts(count=8, chosen=3, hidden=16, shared=2, dense_layers=1, dispatch="sorted")
SORTED = replace(MIXTRAL, layers=3, experts=DEEPSEEK)
APART = replace(SORTED, experts=replace(DEEPSEEK, dispatch="sorted apart"))
FORMS = {
    "dense scanned": MIXTRAL,
    "dense listed": MIXTRAL.listed(),
    "sorted scanned": SORTED,
    "sorted listed": SORTED.listed(),
    "apart scanned": APART,
    "apart listed": APART.listed(),
}
PLANS = (
    Plan(8, strategy="fsdp"),
    Plan(4, 2, strategy="fsdp"),
    Plan(8, strategy="zero2"),
    Plan(2, 2, 2),
)
MICROBATCHED = (Plan(4, 2, microbatches=2), Plan(4, 1, 2, 2, strategy="fsdp"))
OF_EXPERTS = Plan(4, 1, 2, 2, strategy="zero1", experts=4)
OF_SLOTS = (
    *PLANS,
    *MICROBATCHED,
    Plan(8, experts=4),
    Plan(4, 2, strategy="fsdp", experts=2, sequence=True),
    OF_EXPERTS,
)
OF_ROWS = (
    *PLANS,
    Plan(8, experts=4),
    Plan(4, 2, strategy="fsdp", experts=2, sequence=True),
    Plan(2, 4, strategy="fsdp", experts=2),
    Plan(4, 1, 2, strategy="zero1", experts=4),
)
BY_DISPATCH = {"dense": OF_SLOTS, "sorted": OF_ROWS, "apart": (*MICROBATCHED, OF_EXPERTS)}
CASES = [(form, plan) for form in FORMS for plan in BY_DISPATCH[form.split()[0]]]


@pytest.mark.parametrize(("form", "plan"), CASES, ids=str)
def test_a_plan_computes_what_one_device_does(form: str, plan: Plan, cpu_devices: list[Any]) -> None:
    step_of(FORMS[form]).check(plan, cpu_devices)


@pytest.mark.parametrize("form", ["sorted scanned", "sorted listed"])
def test_tokens_sorted_over_the_whole_batch_take_one_microbatch(form: str) -> None:
    """Where a token's row lies depends on the tokens of all sequences; sorted sequence by sequence it does not."""
    with pytest.raises(ScheduleError, match="one microbatch"):
        step_of(FORMS[form]).planner.schedule(MICROBATCHED[0])


@pytest.mark.parametrize("form", ["scanned", "listed"])
def test_sorted_sequence_by_sequence_tokens_meet_the_same_experts(form: str) -> None:
    whole, apart = (step_of(FORMS[f"{dispatch} {form}"]).expected for dispatch in ("sorted", "apart"))
    for one, other in zip(whole, apart, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_without_experts_a_plan_of_experts_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no weight has a dim of experts"):
        step_of(SMALL).planner.schedule(Plan(4, experts=4))


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


@pytest.mark.parametrize("form", ["sorted scanned", "sorted listed"])
@pytest.mark.parametrize("devices", [4, 8])
def test_sorted_tokens_go_to_all_experts_and_back(form: str, devices: int) -> None:
    """Tokens are gathered where the experts are, for both forward passes, and the gradients of what a layer makes of
    them; sums of what the experts make go back to their tokens, and so do gradients.  Gates sum nothing."""
    config = replace(FORMS[form], width=1024, layers=2)
    experts, tokens = DEEPSEEK, 4 * BATCH * config.length * config.width
    moved = 5 * tokens * (devices - 1) / devices
    routed = 4 * 3 * experts.count * config.width * experts.hidden
    reduced = 2 * (weight_bytes(config) - routed) * (devices - 1) / devices
    shared = 2 * routed / 4 * (devices / 4 - 1) / (devices / 4)  # of four data ways with experts, what others have, too
    assert step_of(config).received(Plan(devices, experts=4)) == pytest.approx(moved + reduced + shared, rel=0.01)
