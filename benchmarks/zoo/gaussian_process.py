"""Gaussian processes: kernel matrix, Cholesky, triangular solves, the likelihood's gradient, predictions.

Many at once, a few on each device; or one whose points are split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree


def kernel(params: Tree, a: jax.Array, b: jax.Array) -> jax.Array:
    """Squared exponential; [..., n, features] and [..., m, features] -> [..., n, m]."""
    a, b = a / jnp.exp(params["length"]), b / jnp.exp(params["length"])
    squares = jnp.square(a).sum(-1)[..., :, None] + jnp.square(b).sum(-1)[..., None, :]
    return jnp.exp(2 * params["signal"] - (squares - 2 * jnp.einsum("...nf,...mf->...nm", a, b)) / 2)


def solved(params: Tree, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The Cholesky factor, and the inverse factor times y."""
    noise = jnp.exp(2 * params["noise"]) * jnp.eye(x.shape[-2])
    factor = jnp.linalg.cholesky(kernel(params, x, x) + noise)
    return factor, solve_triangular(factor, y[..., None], lower=True)


def negative_log_likelihood(params: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
    factor, half = solved(params, x, y)
    logs = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    return (jnp.square(half).sum((-1, -2)) / 2 + logs).mean() / x.shape[-2]


def predict(params: Tree, x: jax.Array, y: jax.Array, new: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance at new points."""
    factor, half = solved(params, x, y)
    cross = solve_triangular(factor, kernel(params, x, new), lower=True)
    mean = jnp.einsum("...nm,...n->...m", cross, half[..., 0])
    return mean, jnp.exp(2 * params["signal"]) - jnp.square(cross).sum(-2)


def builder(*split: Any, processes: int) -> Callable[[Mesh, int], Program]:
    """One step on the likelihood, and predictions; inputs [processes, points, features] are split so."""

    def build(mesh: Mesh, scale: int) -> Program:
        say, draw, points = parts.annotator(mesh), Draw(), 64 * scale
        params = {"length": np.zeros(3, np.float32), "signal": np.float32(0), "noise": np.float32(-1)}

        def step(params: Tree, momentum: Tree, x: jax.Array, y: jax.Array, new: jax.Array) -> Any:
            x, y, new = say(x, *split), say(y, *split), say(new, *split)
            value, gradients = jax.value_and_grad(negative_log_likelihood)(params, x, y)
            return *parts.momentum_step(params, gradients, momentum), value, predict(params, x, y, new)

        data = draw.normal(processes, points, 3), draw.normal(processes, points), draw.normal(processes, points // 2, 3)
        return Program(function=step, arguments=(params, parts.zeros(params), *data))

    return build


MODELS = (
    Model(name="Gaussian processes, batch", axes=(("data", 8),), build=builder("data", processes=8)),
    Model(name="Gaussian process, points", axes=DATA_BY_MODEL, build=builder(None, "model", processes=1)),
)
