"""Plans of decoders with experts, dense and sorted dispatch, layers in a scan and listed: each computes what one device
does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from benchmarks.published.experts import Experts
from benchmarks.published.transformer import Config, parameters, train_step
from hlosharding.errors import ScheduleError
from hlosharding.schedule import StageProgram
from hlosharding.search import Plan, Planner

MIXTRAL = Config(
    layers=2,
    width=32,
    heads=4,
    kv_heads=2,
    vocabulary=64,
    length=16,
    hidden=64,
    gated=True,
    positions="rotary",
    tied=False,
    compute=jnp.float32,
    experts=Experts(count=4, chosen=2, hidden=32),
)
DEEPSEEK = Experts(count=8, chosen=3, hidden=16, shared=2, dense_layers=1, dispatch="sorted")
SORTED = replace(MIXTRAL, layers=3, experts=DEEPSEEK)
FORMS = {
    "dense scanned": MIXTRAL,
    "dense listed": MIXTRAL.listed(),
    "sorted scanned": SORTED,
    "sorted listed": SORTED.listed(),
}
BATCH = 16
PLANS = (Plan(8, strategy="fsdp"), Plan(4, 2, strategy="fsdp"), Plan(8, strategy="zero2"), Plan(2, 2, 2))
MICROBATCHED = (Plan(4, 2, microbatches=2), Plan(4, 1, 2, 2, strategy="fsdp"))
CASES = [(form, plan) for form in FORMS for plan in (*PLANS, *(MICROBATCHED if "dense" in form else ()))]


@cache
def arguments(form: str) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    weights = jax.tree.map(lambda s: jnp.asarray(random.normal(size=s.shape) * 0.3, s.dtype), parameters(FORMS[form]))
    small = jax.tree.map(lambda leaf: jnp.abs(leaf) * 0.1, weights)
    tokens = jnp.asarray(random.integers(0, MIXTRAL.vocabulary, size=(BATCH, MIXTRAL.length)), jnp.int32)
    return weights, (small, small), tokens


@cache
def planner(form: str) -> Planner:
    return Planner(hs.trace(partial(train_step, FORMS[form]))(*arguments(form)), ["tokens"])


@cache
def expected(form: str) -> list[Any]:
    return jax.tree.leaves(jax.jit(partial(train_step, FORMS[form]))(*arguments(form)))


@pytest.mark.parametrize(("form", "plan"), CASES, ids=str)
def test_a_plan_computes_what_one_device_does(form: str, plan: Plan, cpu_devices: list[Any]) -> None:
    found = planner(form).schedule(plan).compile(cpu_devices[: plan.num_devices])(*jax.tree.leaves(arguments(form)))
    for ours, theirs in zip(found, expected(form), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("form", ["sorted scanned", "sorted listed"])
def test_tokens_sorted_over_the_whole_batch_take_one_microbatch(form: str) -> None:
    """Where a token's row lies depends on the tokens of all sequences."""
    with pytest.raises(ScheduleError, match="one microbatch"):
        planner(form).schedule(MICROBATCHED[0])


@pytest.mark.parametrize("form", ["dense scanned", "dense listed"])
def test_fsdp_gathers_weights_twice_and_reduces_gradients_once(form: str) -> None:
    """As of dense layers: a group of the dispatch is a sequence, so no activation moves."""
    weights = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(parameters(FORMS[form])))
    pipeline = planner(form).pipeline(Plan(8, strategy="fsdp"))
    ops = [each.op for each in (*pipeline.pieces, *pipeline.closings)]
    moved = sum(hs.cost(op.program.module).comm_bytes for op in ops if isinstance(op, StageProgram))
    assert 0.95 < moved / (3 * 7 / 8 * weights) < 1.01
