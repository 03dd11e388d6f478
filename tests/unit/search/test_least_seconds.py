"""What a plan takes at least: its arithmetic at the best rate, and the bubble that no share of the work avoids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.search import Plan
from hlosharding.search.least_seconds import LeastWork, least_seconds
from tests.support.uniform_pipelines import machine, pipeline


def seconds_of(shares: Sequence[float], microbatches: int, schedule: str, chunks: int = 1) -> float:
    """Of a pipeline of which each stage takes so long for all microbatches together, two thirds of it backward."""
    devices = len(shares) // chunks
    passes = [share / microbatches for share in shares]
    cut = pipeline(
        devices, microbatches, [each / 3 for each in passes], [each * 2 / 3 for each in passes], chunks=chunks
    )
    return cut.schedule(schedule, microbatches).simulate(machine(devices)).time_s


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("1f1b-x2", 2), ("1f1b-x4", 4), ("breadth-first-x2", 2)]
)
@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 4), (4, 8)])
def test_no_share_of_the_work_takes_less(p: int, m: int, schedule: str, chunks: int) -> None:
    random = Random(f"{p} {m} {schedule}")
    for _ in range(20):
        shares = [random.uniform(0.01, 1) ** 2 for _ in range(p * chunks)]
        bound = least_seconds(Plan(1, 1, p, m, schedule), LeastWork(sum(shares), sum(shares)))
        assert seconds_of(shares, m, schedule, chunks) >= bound * (1 - 1e-9)


def test_unequal_stages_may_take_less_than_the_bubble_of_equal_ones() -> None:
    found, bound = seconds_of([2 / 3, 1 / 3], 2, "1f1b"), least_seconds(Plan(1, 1, 2, 2), LeastWork(1.0, 1.0))
    assert (found, bound) == pytest.approx((13 / 18, 2 / 3))
    assert bound < found < 1 / 2 * (1 + 1 / 2)


@pytest.mark.parametrize("plan", [Plan(), Plan(4), Plan(2, 2)], ids=str)
def test_one_stage_is_at_work_all_the_time(plan: Plan) -> None:
    assert least_seconds(plan, LeastWork(8.0, 8.0)) == 8.0 / plan.num_devices


def test_products_count_by_their_types_and_only_where_they_surely_run() -> None:
    def step(w: jax.Array, x: jax.Array, n: jax.Array) -> jax.Array:
        y = jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ w), x)  # three products
        z = jax.lax.cond(n > 0, lambda: y @ w, lambda: y)  # perhaps none
        return z.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)  # one, faster

    given = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((64, 64), (32, 64), ())]
    h100 = replace(machines.h100(), compute_efficiency=0.5)
    found = LeastWork.of(hs.trace(step)(*given), {1}, h100)
    flops = 2 * 32 * 64 * 64
    expected = 3 * flops / (h100.flops("f32") * 0.5) + flops / (h100.flops("bf16") * 0.5)
    assert found.all_s == pytest.approx(expected)
    assert found.of_batch_s == pytest.approx(expected)
