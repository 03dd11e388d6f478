"""The strategies that people train decoders with, layers in a scan and listed: each computes what one device does, and
both forms of the model move as many bytes."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from benchmarks.published.transformer import Config, parameters, train_step
from hlosharding.search import Plan, Planner
from hlosharding.search.tensor_parallel import tensor_splits

SMALL = Config(
    layers=4,
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
)
FORMS = {"scanned": SMALL, "listed": SMALL.listed()}
BATCH = 16
PLANS = (
    Plan(8, strategy="fsdp"),
    Plan(4, 2, strategy="fsdp"),
    Plan(8, strategy="fsdp", replicas=2),
    Plan(8, strategy="zero2"),
    Plan(8, context=4),
    Plan(8, strategy="fsdp", context=8),
    Plan(4, 2, context=2),
    Plan(4, 1, 2, 2, strategy="fsdp", context=2),
    Plan(4, 2, microbatches=2),
    Plan(4, 1, 2, 2, strategy="fsdp"),
    Plan(2, 2, 2, 2, strategy="zero2"),
)


@cache
def arguments(form: str) -> tuple[Any, Any, Any]:
    """Weights and moments, drawn alike for both forms, and tokens."""
    random = np.random.default_rng(0)
    stacked = jax.tree.map(lambda s: jnp.asarray(random.normal(size=s.shape) * 0.3, s.dtype), parameters(SMALL))
    if form == "listed":
        rows = [jax.tree.map(lambda leaf, n=n: leaf[n], stacked["layers"]) for n in range(SMALL.layers)]
        stacked = {**stacked, "layers": rows}
    small = jax.tree.map(lambda leaf: jnp.abs(leaf) * 0.1, stacked)
    tokens = jnp.asarray(random.integers(0, SMALL.vocabulary, size=(BATCH, SMALL.length)), jnp.int32)
    return stacked, (small, small), tokens


@cache
def planner(form: str) -> Planner:
    return Planner(hs.trace(partial(train_step, FORMS[form]))(*arguments(form)), ["tokens"])


@cache
def expected(form: str) -> list[Any]:
    return jax.tree.leaves(jax.jit(partial(train_step, FORMS[form]))(*arguments(form)))


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_plan_computes_what_one_device_does(form: str, plan: Plan, cpu_devices: list[Any]) -> None:
    found = planner(form).schedule(plan).compile(cpu_devices[: plan.num_devices])(*jax.tree.leaves(arguments(form)))
    for ours, theirs in zip(found, expected(form), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


def received(form: str, plan: Plan) -> float:
    pipeline = planner(form).pipeline(plan)
    programs = [each.op.program.module for each in (*pipeline.pieces, *pipeline.closings)]
    return sum(hs.cost(module).comm_bytes for module in programs)


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.stages == plan.tensor == 1], ids=str)
def test_scanned_layers_move_what_listed_ones_do(plan: Plan) -> None:
    assert received("scanned", plan) == pytest.approx(received("listed", plan), rel=0.02)


@pytest.mark.parametrize("form", FORMS)
def test_fsdp_gathers_weights_twice_and_reduces_gradients_once(form: str) -> None:
    """ZeRO-3: with all of a layer computed again, its weights are gathered for each pass; no activation moves."""
    weights = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(parameters(SMALL)))
    most = 3 * 7 / 8 * weights
    assert 0.85 * most < received(form, Plan(8, strategy="fsdp")) < 1.01 * most


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_sequences_gather_keys_and_values_and_nothing_else(form: str) -> None:
    """Context parallelism: keys and values for both passes that read them, gradients of both reduced to parts; and
    gradients of weights, the loss's neighbours and its mean."""
    context, devices = 4, 8
    shapes = jax.tree.leaves(parameters(SMALL))
    weights = 4 * sum(math.prod(leaf.shape) for leaf in shapes)
    keys = 4 * BATCH // (devices // context) * SMALL.length * SMALL.kv * SMALL.dim
    expected = SMALL.layers * 6 * keys * (context - 1) / context + 2 * weights * (devices - 1) / devices
    assert received(form, Plan(devices, context=context)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("form", FORMS)
def test_attention_is_split_by_heads(form: str) -> None:
    module = planner(form).module
    names = {p.parameter_number: p.op_name for p in module.entry.parameters}
    splits = tensor_splits(module, 2, batch=planner(form).numbers)
    first = {names[n].rsplit("'", 2)[1]: dim for n, dim in splits.items() if names[n].startswith("weights['layers']")}
    dims = dict.fromkeys("qkv", 1) | {"o": 0, "up": 1, "gate": 1, "down": 0}
    assert first == {name: dim + (form == "scanned") for name, dim in dims.items()}


def test_heads_that_do_not_divide_leave_their_weights_whole() -> None:
    """Rather than to split the features of a head, over which attention sums."""
    module = planner("listed").module
    names = {p.parameter_number: p.op_name for p in module.entry.parameters}
    splits = {names[n] for n in tensor_splits(module, 4, batch=planner("listed").numbers)}
    assert "weights['layers'][0]['q']" in splits
    assert splits.isdisjoint({"weights['layers'][0]['k']", "weights['layers'][0]['v']"})
