"""Plans of a decoder of Flax NNX, layers in `nnx.scan` and listed: each computes what one device does."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.search import Plan, Planner

pytest.importorskip("flax")
from benchmarks.published.nnx_decoder import split, train_step
from benchmarks.published.transformer import Config

SMALL = Config(layers=2, width=32, heads=4, vocabulary=64, length=16, hidden=64, compute=jnp.float32)
FORMS = {"scanned": SMALL, "listed": SMALL.listed()}
PLANS = (
    Plan(8, strategy="fsdp"),
    Plan(4, 2, strategy="fsdp"),
    Plan(8, strategy="fsdp", replicas=2),
    Plan(8, strategy="zero2"),
    Plan(4, 2, microbatches=2),
    Plan(2, 2, 2, 2, strategy="zero2"),
)


@cache
def step(form: str) -> tuple[Any, tuple[Any, ...]]:
    """The step of one form and its arguments."""
    graph, weights = split(FORMS[form])
    small = jax.tree.map(lambda leaf: jnp.abs(leaf) * 0.1 + 0.01, weights)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, SMALL.vocabulary, size=(16, SMALL.length)), jnp.int32)
    return partial(train_step, graph), (weights, (small, small), tokens)


@cache
def planner(form: str) -> Planner:
    run, arguments = step(form)
    return Planner(hs.trace(run)(*arguments), ["tokens"])


@cache
def expected(form: str) -> list[Any]:
    run, arguments = step(form)
    return jax.tree.leaves(jax.jit(run)(*arguments))


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_plan_computes_what_one_device_does(form: str, plan: Plan, cpu_devices: list[Any]) -> None:
    compiled = planner(form).schedule(plan).compile(cpu_devices[: plan.num_devices])
    for ours, theirs in zip(compiled(*jax.tree.leaves(step(form)[1])), expected(form), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)
