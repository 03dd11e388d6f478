"""Plans of decoders with flash attention: heads are split as of what is written out; where sequences are, keys go
round, and a plan computes what one device does, scanned and listed, with FSDP, with tensors and with stages."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from benchmarks.published.planning import received_bytes
from benchmarks.published.transformer import train_step
from hlosharding.partitioner.factors import ring_attention
from hlosharding.schedule import StageProgram
from hlosharding.search import Plan, Planner
from hlosharding.search.tensor_parallel import tensor_splits
from tests.support.published_steps import SMALL, step_of

FUSED = replace(SMALL, layers=2, attention="cudnn", compute=jnp.bfloat16)
PLANS = {
    "scanned": (Plan(8, strategy="fsdp", context=4), Plan(2, 2, 2, 2, context=2, sequence=True)),
    "listed": (Plan(8, context=8), Plan(4, 1, 2, 2, strategy="fsdp", context=2)),
}
CASES = [(form, plan) for form, plans in PLANS.items() for plan in plans]


@cache
def step(form: str) -> tuple[Planner, list[Any], list[Any]]:
    """The step with calls to cuDNN, what it is called with, and what JAX's own attention makes of that."""
    config = FUSED if form == "scanned" else FUSED.listed()
    arguments = step_of(config).arguments
    traced = hs.trace(partial(train_step, config), platform="cuda")(*arguments)
    expected = jax.jit(partial(train_step, replace(config, attention="xla")))(*arguments)
    return Planner(traced, ["tokens"]), jax.tree.leaves(arguments), jax.tree.leaves(expected)


@pytest.fixture
def _always_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of programs so small a call takes less."""
    monkeypatch.setattr(ring_attention, "_pays", lambda *_: True)


@pytest.mark.usefixtures("_always_rings")
@pytest.mark.parametrize(("form", "plan"), CASES, ids=str)
def test_a_plan_computes_what_one_device_does(form: str, plan: Plan, cpu_devices: list[Any]) -> None:
    """In bf16, of which a product has two digits."""
    planner, arguments, expected = step(form)
    found = planner.schedule(plan).compile(cpu_devices[: plan.num_devices])(*arguments)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.linalg.norm(ours - theirs) <= 5e-3 * np.linalg.norm(theirs)


@pytest.mark.usefixtures("_always_rings")
def test_keys_go_round_and_nothing_else_moves_for_them() -> None:
    pipeline = step("scanned")[0].pipeline(Plan(8, context=4))
    programs = [piece.op.program.module for piece in pipeline.pieces if isinstance(piece.op, StageProgram)]
    of_attention = [c for program in programs for c in hs.collectives(program) if "dot_product_attention" in c.cause]
    assert {c.kind for c in of_attention} == {"collective-permute"}


WRITTEN = step_of(replace(FUSED, attention="xla")).planner


def test_tensors_are_split_as_of_attention_that_is_written_out() -> None:
    """The output's weight by rows, for which the heads' split has to be known behind the call."""
    fused, written = (tensor_splits(each.module, 2, batch=each.numbers) for each in (step("scanned")[0], WRITTEN))
    assert fused == written


@pytest.mark.parametrize("plan", [Plan(4, 2), Plan(1, 2), Plan(4, 2, sequence=True)], ids=str)
def test_heads_move_what_they_do_of_attention_that_is_written_out(plan: Plan) -> None:
    """Nothing (Shoeybi et al. 2019).  Of weights that are larger than activations, so that they stay."""
    wide = replace(FUSED, hidden=32 * FUSED.hidden)
    traced = hs.trace(partial(train_step, wide), platform="cuda")(*step_of(wide).arguments)
    planners = Planner(traced, ["tokens"]), step_of(replace(wide, attention="xla")).planner
    fused, written = (received_bytes(each.pipeline(plan)) for each in planners)
    assert fused == pytest.approx(written, rel=0.01)
