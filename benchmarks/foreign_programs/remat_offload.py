"""JAX itself: what it keeps, computes anew, or puts into the host's memory between forward and backward."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, normal, put

LAYERS, WIDTH = 4, 256


def _layer(x: jax.Array, weights: Any) -> tuple[jax.Array, None]:
    up = checkpoint_name(x @ weights[0], "up")
    out = checkpoint_name(jax.nn.gelu(up) @ weights[1], "out")
    return x + out * jax.lax.rsqrt(jnp.square(out).mean(-1, keepdims=True) + 1e-6), None


def _step(mesh: Mesh, policy: Any) -> Step:
    def loss(weights: Any, x: jax.Array) -> jax.Array:
        return jnp.square(jax.lax.scan(jax.checkpoint(_layer, policy=policy), x, weights)[0]).mean()

    up = put(mesh, normal(0, LAYERS, WIDTH, 4 * WIDTH) * WIDTH**-0.5, None, None, "model")
    down = put(mesh, normal(1, LAYERS, 4 * WIDTH, WIDTH) * (4 * WIDTH) ** -0.5, None, "model", None)
    return Step(jax.value_and_grad(loss), ((up, down), put(mesh, normal(2, 512, WIDTH), "data")))


def saved_dots(mesh: Mesh) -> Step:
    """Products are kept, all else is computed anew."""
    return _step(mesh, jax.checkpoint_policies.dots_with_no_batch_dims_saveable)


def offloaded(mesh: Mesh) -> Step:
    """One product is put into the host's memory, the other kept."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["out"], names_which_can_be_offloaded=["up"],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip
    return _step(mesh, policy)
