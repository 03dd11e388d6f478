"""Adam in plain JAX: moments shaped like the parameters, so that they inherit the parameters' shardings."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Tree = Any


class AdamState(NamedTuple):
    """How many steps were made, and both moments of every gradient."""

    count: jax.Array
    mean: Tree
    variance: Tree


def adam_zeros(params: Tree) -> AdamState:
    """The state before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return AdamState(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.zeros_like, params))


def adam_step(
    params: Tree,
    gradients: Tree,
    state: AdamState,
    *,
    learning_rate: float,
    decay: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> tuple[Tree, AdamState]:
    """One step of Kingma & Ba (2015), with bias correction: (new params, new state)."""
    fast, slow = decay
    count = state.count + 1
    mean = jax.tree.map(lambda m, g: fast * m + (1 - fast) * g, state.mean, gradients)
    variance = jax.tree.map(lambda v, g: slow * v + (1 - slow) * g * g, state.variance, gradients)
    rate = learning_rate * jnp.sqrt(1 - slow**count) / (1 - fast**count)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + epsilon), params, mean, variance)
    return params, AdamState(count, mean, variance)
