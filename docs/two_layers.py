"""A training step of two layers: the program of start_jax.md."""

from typing import Any

import jax
import jax.numpy as jnp


def loss(params: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    hidden = jnp.tanh(x @ params["up"])
    result = hidden @ params["down"]
    return jnp.mean((result - y) ** 2)


def step(params: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> Any:
    grads = jax.grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
