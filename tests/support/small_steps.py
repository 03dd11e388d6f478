"""Small steps on which optima are looked for, in tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Step = tuple[Callable[..., Any], tuple[Any, ...]]


def floats(*dims: int) -> jax.ShapeDtypeStruct:
    """An array that nobody has."""
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def descend(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A step of gradient descent on its first argument."""

    def step(weights: Any, *batch: Any) -> Any:
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, jax.grad(loss)(weights, *batch))

    return step


def perceptron(rows: int, inside: int, hidden: int, outside: int) -> Step:
    """Of two layers."""

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ weights["up"]) @ weights["down"] - y) ** 2)

    weights = {"up": floats(inside, hidden), "down": floats(hidden, outside)}
    return descend(loss), (weights, floats(rows, inside), floats(rows, outside))


def masked(rows: int, length: int, width: int) -> Step:
    """Causal attention and a gated layer, as people write them: with functions that are jitted."""

    def loss(weights: Any, x: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", x @ weights["query"], x @ weights["key"])
        seen = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        x = x + jax.nn.softmax(seen, -1) @ (x @ weights["value"])
        return jnp.sum((jax.nn.silu(x @ weights["up"]) @ weights["down"]) ** 2)

    narrow = {name: floats(width, width) for name in ("query", "key", "value")}
    weights = {**narrow, "up": floats(width, 4 * width), "down": floats(4 * width, width)}
    return descend(loss), (weights, floats(rows, length, width))


def scanned(layers: int, rows: int, width: int) -> Step:
    """Layers in a loop."""

    def loss(weights: Any, x: Any) -> Any:
        last, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)
        return jnp.sum(last**2)

    return descend(loss), (floats(layers, width, width), floats(rows, width))


def listed(layers: int, rows: int, width: int) -> Step:
    """The same, layer after layer."""

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.sum(x**2)

    return descend(loss), ([floats(width, width)] * layers, floats(rows, width))
