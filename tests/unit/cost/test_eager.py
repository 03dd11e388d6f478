"""Kernels of a framework without a compiler, against those that a reader of the program counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import CostReport, Machine, machines
from hlosharding.errors import CostError

X = jax.ShapeDtypeStruct((256, 256), jnp.float32)
BYTES = 256 * 256 * 4


def eager(function: Callable[..., Any], *arguments: Any) -> CostReport:
    return hs.cost(hs.trace(function)(*arguments), machines.a100(1), runtime="eager")


def test_what_one_line_computes_is_one_kernel() -> None:
    def two_lines(x):
        y = jnp.tanh(x * 2 + 1)
        return jnp.exp(y - 3)

    found = eager(two_lines, X)
    assert found.num_kernels == 2
    assert found.memory_traffic_bytes == 2 * 2 * BYTES  # each reads one array and writes one


def test_a_product_is_a_kernel_of_its_own_line() -> None:
    def layer(w, x):
        return jnp.tanh(x @ w + 1)

    assert eager(layer, X, X).num_kernels == 2


@pytest.mark.parametrize("called", [jax.jit, jax.named_scope("norm")], ids=["jit", "scope"])
def test_a_function_without_a_product_is_one_kernel(called: Any) -> None:
    @called
    def norm(x):
        centred = x - jnp.mean(x, -1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True))
        return centred * scale

    found = eager(norm, X)
    assert (found.num_kernels, found.memory_traffic_bytes) == (1, 2 * BYTES)


def test_a_function_that_holds_a_product_is_as_many_as_its_lines() -> None:
    @jax.jit
    def layer(w, x):
        x = jnp.tanh(x)
        x = x @ w
        return jnp.exp(x)

    assert eager(layer, X, X).num_kernels == 3


def test_an_update_of_all_weights_is_one_kernel_that_reads_and_writes_each_once() -> None:
    @jax.named_scope("update")
    def update(weights, moments, gradients):
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
        return jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments), moments

    tree = [X, X, X]
    found = eager(update, tree, tree, tree)
    assert (found.num_kernels, found.memory_traffic_bytes) == (1, 3 * 5 * BYTES)


def test_a_loop_launches_its_body_in_each_trip() -> None:
    def layers(ws, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]

    found = eager(layers, jax.ShapeDtypeStruct((5, 256, 256), jnp.float32), X)
    assert found.num_kernels == 5 * 2
    # The product reads an array and a layer's weight, and writes one; tanh reads and writes one.
    assert found.memory_traffic_bytes == 5 * (3 + 2) * BYTES


def test_views_cost_nothing() -> None:
    def flipped(x):
        return x.T.reshape(128, 512)[:, :256] @ x

    assert eager(flipped, X).num_kernels == 1


def test_short_kernels_wait_for_the_host_and_long_ones_do_not() -> None:
    def steps(x):
        for _ in range(10):
            x = jnp.tanh(x)
            x = jnp.sin(x)
        return x

    slow = replace(machines.a100(1), dispatch=1e-3)
    module = hs.trace(steps)(X)
    found = hs.simulate(module, slow, runtime="eager")
    assert hs.cost(module, slow, runtime="eager").time_s == pytest.approx(20 * 1e-3)
    last = found.timeline[-1].seconds
    assert found.time_s == pytest.approx(20 * 1e-3 + last)
    assert found.waiting_s == pytest.approx(found.time_s - 20 * last)
    hurried = hs.simulate(module, replace(slow, dispatch=1e-9), runtime="eager")
    assert hurried.time_s == pytest.approx(20 * last, rel=1e-3)


def test_a_loop_waits_for_the_host_in_each_trip() -> None:
    def steps(x):
        return jax.lax.scan(lambda x, _: (jnp.tanh(x), None), x, length=50)[0]

    slow = replace(machines.a100(1), dispatch=1e-3)
    found = hs.simulate(hs.trace(steps)(X), slow, runtime="eager")
    assert found.time_s == pytest.approx(50 * 1e-3, rel=0.01)


def test_a_machine_that_does_not_say_what_a_launch_takes_runs_nothing_eagerly() -> None:
    with pytest.raises(CostError, match="how long a host takes to launch an op"):
        hs.cost(hs.trace(jnp.tanh)(X), machines.tpu_v5p(1), runtime="eager")


def test_what_runs_it_goes_with_the_machine() -> None:
    run: Machine = machines.a100(16).with_runtime("eager")
    assert run.with_devices(8).runtime == run.among((0, 1)).runtime == "eager"
    assert run.with_runtime(None) is run
    assert run.with_runtime("compiled") == machines.a100(16)
    mixed = Machine.of_parts(machines.a100(8), machines.h100(8)).with_runtime("eager")
    assert {part.runtime for part in mixed.parts} == {mixed.runtime} == {"eager"}


def test_an_all_reduce_keeps_the_device_and_a_bucket_of_them_does_not() -> None:
    def module(reduces: int) -> hs.Module:
        names = [f"r{n}" for n in range(reduces)]
        calls = [f"{name} = {ARRAY} all-reduce(x), channel_id={n}, to_apply=sum" for n, name in enumerate(names, 1)]
        return hs.load("\n".join([HEAD, *calls, PRODUCT, f"ROOT all = tuple({', '.join([*names, 'y'])})", "}"]))

    one, bucket = module(1), module(2)
    waits = hs.simulate(one, machines.a100(8), runtime="eager")
    assert waits.time_s == pytest.approx(waits.compute_s + waits.comm_s + waits.waiting_s)
    for overlaps in (hs.simulate(one, machines.a100(8)), hs.simulate(bucket, machines.a100(8), runtime="eager")):
        assert overlaps.time_s < 0.9 * (overlaps.compute_s + overlaps.comm_s)


ARRAY = "f32[1792,1792]"  # two of them fit into a bucket
PRODUCT = f"y = {ARRAY} dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
HEAD = f"""HloModule m, num_partitions=8
sum {{
a = f32[] parameter(0)
b = f32[] parameter(1)
ROOT c = f32[] add(a, b)
}}
ENTRY e {{
x = {ARRAY} parameter(0)"""
