"""Steps whose constraints leave dims open, or whose keys JAX marks so: each way to plan takes them, and is right."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.search import Plan, Planner, find_optimum, suggest

NUMBERS = np.sin(np.arange(64, dtype=np.float32)).reshape(8, 8) / 8
WEIGHTS = {"up": NUMBERS, "down": NUMBERS.T}
ROWS = np.cos(np.arange(256.0, dtype=np.float32)).reshape(32, 8)
MACHINE = machines.h100(8)


@pytest.fixture
def half_open(cpu_devices: list[Any]) -> Any:
    """Dropout, its key split and given back; a hidden value of which one dim alone is said."""
    mesh = Mesh(np.array(cpu_devices[:8]).reshape(4, 2), ("data", "tensor"))
    columns = NamedSharding(mesh, P(P.UNCONSTRAINED, "tensor"))

    def step(weights: Any, key: jax.Array, rows: Any) -> Any:
        def loss(weights: Any) -> jax.Array:
            hidden = jax.lax.with_sharding_constraint(jnp.tanh(rows @ weights["up"]), columns)
            hidden = hidden * jax.random.bernoulli(key, 0.8, hidden.shape)
            return jnp.sum((hidden @ weights["down"]) ** 2)

        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights)), jax.random.split(key)

    return step


def check(found: Any, step: Any, arguments: tuple[Any, ...]) -> None:
    """Numbers of one device; of keys their data."""
    weights, keys = jax.jit(step)(*arguments)
    expected = *jax.tree.leaves(weights), jax.random.key_data(keys)
    for ours, theirs in zip(jax.tree.leaves(found), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("plan", [Plan(8, strategy="fsdp"), Plan(4, 2), Plan(2, 2, 2, 2)], ids=str)
def test_plans_compute_what_one_device_does(plan: Plan, half_open: Any, cpu_devices: list[Any]) -> None:
    arguments = WEIGHTS, jax.random.key(0), ROWS
    schedule = Planner(hs.trace(half_open)(*arguments), ["rows"]).schedule(plan)
    flat = jax.tree.leaves(arguments)
    check(schedule.run_reference(*flat), half_open, arguments)
    check(schedule.compile(cpu_devices)(*flat), half_open, arguments)


def test_of_the_optimum_the_dims_that_are_said_bind(half_open: Any) -> None:
    arguments = WEIGHTS, jax.random.key(0), ROWS
    best = find_optimum(hs.trace(half_open)(*arguments), MACHINE, {"data": 4, "tensor": 2})
    calls = [inst for inst in best.shardings if inst.custom_call_target == "Sharding" and inst.shape.dims == (32, 8)]
    assert calls
    assert all(best.shardings[call].data_dims[1] == 2 for call in calls)
    weights, keys = best.partitioned.run(*jax.tree.leaves(arguments))
    check((weights, jax.random.key_data(keys)), half_open, arguments)


@pytest.mark.parametrize("names", [True, False], ids=["axes", "no axes"])
def test_suggestions(names: bool, half_open: Any) -> None:
    """Over the axes of the constraint, or those that its tiles are made of: over all devices as one it would take more
    time than with nothing said.
    """
    square = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    rows = jax.ShapeDtypeStruct((16384, 1024), jnp.float32)
    module = hs.trace(half_open)({"up": square, "down": square}, jax.random.key(0), rows)
    if not names:
        module.mesh = None
    [first, *_] = suggest(module, machine=MACHINE, progress=False)
    assert dict(first.annotations)["rows.1"].data_dims[0] == 4
    assert first.time_s < 0.9 * first.time_before_s


def test_a_search_with_nothing_said(half_open: Any, cpu_devices: list[Any]) -> None:
    arguments = WEIGHTS, jax.random.key(0), ROWS
    found = hs.search(half_open, *arguments, machine=MACHINE, progress=False)
    check(found.schedule.compile(cpu_devices)(*jax.tree.leaves(arguments)), half_open, arguments)
