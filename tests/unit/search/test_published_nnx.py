"""Plans of a decoder of Flax NNX, layers in `nnx.scan` and listed: each computes what one device does."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hlosharding.search import Plan

pytest.importorskip("flax")
from benchmarks.published.nnx_decoder import split, train_step
from benchmarks.published.transformer import Config
from tests.support.published_steps import Step, drawn_tokens

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
def step(form: str) -> Step:
    graph, weights = split(FORMS[form])
    small = jax.tree.map(lambda leaf: jnp.abs(leaf) * 0.1 + 0.01, weights)
    return Step(partial(train_step, graph), (weights, (small, small), drawn_tokens(SMALL)))


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_plan_computes_what_one_device_does(form: str, plan: Plan, cpu_devices: list[Any]) -> None:
    step(form).check(plan, cpu_devices)
