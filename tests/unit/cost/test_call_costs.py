"""Custom calls whose cost a user says: priced as what is known to cost the same, and errors that name the call."""

from __future__ import annotations

from math import inf, nan, prod
from typing import Any

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cost import cost, machines, op_work
from hlosharding.errors import CostError
from hlosharding.ir import Instruction
from tests.support.fused_attention import Sizes, attention_step

RULE = "b s h d, b t k d, b t k d -> b s h d"
WHOLE = ("s", "t", "d", "h", "k")


def flash(call: Instruction) -> hs.CallCost:
    """Causal attention of as many heads of keys, as cuDNN's: forward alone."""
    batch, length, heads, depth = call.operands[0].shape.dims
    sizes = batch * heads, length, length, depth
    moved = sum(o.shape.byte_size for o in call.operands) + call.shape.byte_size + 4 * batch * heads * length
    return hs.CallCost(2.0 * prod(sizes), moved, prod(sizes[:3]) / 2, sizes)


hs.register_rule("call_costs_flash", RULE, need_replication_factors=WHOLE, cost=flash)


def calling(target: str, sharding: str = "") -> hs.Module:
    array, at = "bf16[8,256,8,64]", f", sharding={sharding}" if sharding else ""
    lines = [f"{name} = {array} parameter({n}){at}" for n, name in enumerate("qkv")]
    call = f'ROOT o = {array} custom-call(q, k, v), custom_call_target="{target}"{at}'
    return hs.load("\n".join([f"HloModule m, num_partitions={8 if sharding else 1}", "ENTRY e {", *lines, call, "}"]))


def test_a_call_that_costs_what_cudnns_costs_is_priced_like_it() -> None:
    own = calling("call_costs_flash")
    theirs = attention_step(Sizes(shared=8)).by_name("there")
    assert op_work(own.by_name("o")) == op_work(theirs)
    [row] = [row for row in cost(own, machines.h100(1)).rows if row.time_s]
    [other] = [row for row in cost(theirs.module, machines.h100(1)).rows if row.instruction is theirs]
    assert row.time_s == pytest.approx(other.time_s)


def test_pieces_cost_less() -> None:
    local = hs.partition(calling("call_costs_flash", "{devices=[8,1,1,1]<=[8]}"))
    assert local.cost.flops == cost(calling("call_costs_flash")).flops / 8
    assert local.warnings == ()


def test_what_pallas_calls_an_estimate_is_one() -> None:
    from jax.experimental.pallas import CostEstimate

    estimate = CostEstimate(flops=2 * 4096**3, transcendentals=0, bytes_accessed=3 * 2 * 4096**2)
    hs.register_rule("call_costs_pallas", "b s h d, b s h d, b s h d -> b s h d", cost=lambda call: estimate)
    machine = machines.h100(1)
    report = cost(calling("call_costs_pallas"), machine)
    assert (report.flops, report.memory_traffic_bytes) == (estimate.flops, estimate.bytes_accessed)
    needed = estimate.flops / machine.flops("bf16") / machine.compute_efficiency
    share = needed / (needed + machine.launch)
    slowed = needed / (1 - (1 - machine.sustained) * (2 * share - 1)) / machine.slowest
    assert report.time_s == pytest.approx(machine.launch + slowed, rel=1e-3)


WRONG: dict[str, Any] = {
    "nothing": None,
    "number": 5.0,
    "negative": hs.CallCost(-1.0, 8.0),
    "nan": hs.CallCost(nan, 8.0),
    "endless": hs.CallCost(1.0, inf),
    "text": hs.CallCost("many", 8.0),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_cost_is_an_error_that_names_the_call(what: str) -> None:
    target = f"call_costs_{what}"
    hs.register_rule(target, "b s h d, b s h d, b s h d -> b s h d", cost=lambda call: WRONG[what])
    with pytest.raises(CostError, match=rf"custom call '{target}' is .*at %o; let it be a hlosharding.CallCost"):
        cost(calling(target))


def test_numbers_of_numpy_are_numbers() -> None:
    found = hs.CallCost(np.float64(8), np.int64(4))  # pyright: ignore[reportArgumentType]
    hs.register_rule("call_costs_numpy", "b s h d, b s h d, b s h d -> b s h d", cost=lambda call: found)
    assert op_work(calling("call_costs_numpy").by_name("o"))[:3] == (8.0, 0.0, 4.0)
