"""Training steps of many small layers, some of them with one layer that is not as the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import hlosharding as hs

Tree = Any
Say = Callable[..., jax.Array]
WIDTH, BATCH, LENGTH, HEADS = 16, 8, 8, 4


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def _weights(number: int, *dims: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=dims).astype(np.float32) / 4


def _say(mesh: Mesh, x: jax.Array, *axes: str | None) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*axes)))


def mlp_layer(number: int, hidden: int = 32) -> Tree:
    """A residual layer of two products."""
    return {
        "bias": _weights(number, WIDTH),
        "down": _weights(number + 1, hidden, WIDTH),
        "up": _weights(number + 2, WIDTH, hidden),
    }


def mlp(layer: Tree, x: jax.Array, say: Say, activation: Callable[[Any], Any] = jnp.tanh, axis: str = "model") -> Any:
    """Hidden values split over `axis`."""
    hidden = say(activation(x @ layer["up"]), "data", *[None] * (x.ndim - 2), axis)
    return x + hidden @ layer["down"] + layer["bias"]


def attention_layer(number: int) -> Tree:
    """Attention, and a residual layer of two products."""
    return {"attend": _weights(number, 3, WIDTH, HEADS, 4), "back": _weights(number, HEADS, 4, WIDTH)} | mlp_layer(
        number
    )


def transformer(layer: Tree, x: jax.Array, say: Say) -> jax.Array:
    """Heads and hidden values over `model`."""
    mean = x.mean(-1, keepdims=True)
    y = (x - mean) * jax.lax.rsqrt(jnp.square(x - mean).mean(-1, keepdims=True) + 1e-5)
    q, k, v = (say(jnp.einsum("btd,dhc->bthc", y, w), "data", None, "model", None) for w in layer["attend"])
    scores = jax.nn.softmax(jnp.einsum("bthc,bshc->bhts", q, k))
    x = x + jnp.einsum("bhts,bshc,hcd->btd", scores, v, layer["back"])
    return mlp(layer, x, say)


def step(layers: Tree, apply: Callable[..., Any], x: np.ndarray) -> hs.Module:
    """Loss, gradients and Adam over all layers, in the order of the tree; lowered on a 2x4 mesh."""

    def loss(params: Tree, given: jax.Array) -> jax.Array:
        return jnp.square(_through(params, apply, given)[-1]).mean()

    def adam(params: Tree, mean: Tree, square: Tree, given: jax.Array) -> Tree:
        value, gradients = jax.value_and_grad(loss)(params, given)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradients)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, gradients)
        params = jax.tree.map(lambda p, m, s: p - 0.01 * m / (jnp.sqrt(s) + 1e-2), params, mean, square)
        return params, mean, square, value

    zeros = jax.tree.map(np.zeros_like, layers)
    return _lowered(adam, layers, zeros, zeros, x)


def forward(layers: Tree, apply: Callable[..., Any], x: np.ndarray, result: Callable[[list[Any]], Any]) -> hs.Module:
    """Of what all layers make, one result; lowered on a 2x4 mesh."""

    return _lowered(lambda params, given: result(_through(params, apply, given)), layers, x)


def _through(params: Tree, apply: Callable[..., Any], given: jax.Array) -> list[jax.Array]:
    """What each layer makes, behind what is given."""
    say = partial(_say, _mesh())
    made = [say(given, "data")]
    for key in params if isinstance(params, dict) else range(len(params)):
        made.append(apply(key, params[key], made[-1], say))
    return made


def _lowered(function: Callable[..., Any], *arguments: Any) -> hs.Module:
    whole = NamedSharding(_mesh(), PartitionSpec())
    given = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole), arguments)
    return hs.load(jax.jit(function).lower(*given), prepare=True)
