"""Types of values, and those in the memory of hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import hlosharding as hs
from hlosharding.ir import Shape
from hlosharding.schedule import UserOp, parse_schedule
from hlosharding.schedule.value_type import ValueType, parse_type

LAYERS, ROWS, WIDTH = 4, 64, 16
HIDDEN = LAYERS * ROWS * 4 * WIDTH * 4
"""Bytes of what all layers save."""
POLICIES = {
    "saved": jax.checkpoint_policies.save_only_these_names("hidden"),
    "offloaded": jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["hidden"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}


def test_a_value_on_the_host_takes_none_of_the_device() -> None:
    kind = ValueType(Shape.array("f32", (8, 4)), (0, 1), is_on_host=True)
    assert str(kind) == "f32[8,4] on {0,1} in pinned_host"
    assert parse_type(str(kind)) == kind
    assert (kind.tile_bytes, kind.device_bytes) == (128, 0)
    assert parse_type("f32[8,4] on {0} in pinned_host, piece 0/2 of micro").is_on_host


def test_what_an_op_of_a_users_puts_on_the_host_lies_there() -> None:
    away = UserOp("away", lambda x: replace(x, is_on_host=True), lambda x: x)
    text = "func @main(%x: f32[4] on {0}) {\n %y = @away(%x)\n return %y\n}"
    assert "%y = @away(%x) : f32[4] on {0} in pinned_host" in parse_schedule(text, {"away": away}).to_text()


def step(policy: str, *, is_scanned: bool) -> tuple[Any, Any]:
    """A step of layers 16-64-16, and its arguments."""

    def layer(x: jax.Array, w: Any) -> jax.Array:
        return x + checkpoint_name(jnp.tanh(x @ w[0]), "hidden") @ w[1]

    made = jax.checkpoint(layer, policy=POLICIES[policy])

    def loss(weights: Any, x: jax.Array) -> jax.Array:
        if is_scanned:
            x, _ = jax.lax.scan(lambda x, w: (made(x, w), None), x, weights)
        else:
            for w in zip(*weights, strict=True):
                x = made(x, w)
        return jnp.mean(x * x)

    random = np.random.default_rng(0)
    dims = (LAYERS, WIDTH, 4 * WIDTH), (LAYERS, 4 * WIDTH, WIDTH)
    weights = tuple(random.normal(0, 0.1, size).astype(np.float32) for size in dims)
    return jax.value_and_grad(loss), (weights, random.normal(size=(ROWS, WIDTH)).astype(np.float32))


@pytest.mark.parametrize("is_scanned", [True, False], ids=["scanned", "listed"])
def test_a_plan_keeps_what_layers_offload_on_the_host(is_scanned: bool) -> None:
    peaks = {}
    for policy in POLICIES:
        function, arguments = step(policy, is_scanned=is_scanned)
        schedule = hs.pipelined(
            hs.trace(function, platform="cuda")(*arguments), batch=["x"], stages=1, microbatches=2, schedule="gpipe"
        )
        peaks[policy] = hs.simulate(schedule, hs.machines.h100(1)).peak_memory_bytes
        ours = jax.tree.leaves(schedule.compile()(*jax.tree.leaves(arguments)))
        for found, wanted in zip(ours, jax.tree.leaves(jax.jit(function)(*arguments)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    assert peaks["saved"] - peaks["offloaded"] >= HIDDEN / 2  # what is on its way lies on the device
