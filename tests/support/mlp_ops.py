"""The ops of the paper's two-layer perceptron, and its training step on one device."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlosharding.schedule import Op, StageProgram

FIGURES = Path(__file__).parents[1] / "golden" / "schedules"
RATE = 0.1


def dense(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def dense_grad(w: Any, x: Any, da: Any) -> Any:
    _, pull = jax.vjp(dense, w, x)
    return pull(da)


def loss(p: Any, y: Any) -> Any:
    return jnp.sum((p - y) ** 2)


def update(w: Any, dw: Any) -> Any:
    return w - RATE * dw


@cache
def ops(rows: int, width: int = 16) -> dict[str, Op]:
    """For `rows` examples at a time."""
    w = jax.ShapeDtypeStruct((width, width), jnp.float32)
    x = jax.ShapeDtypeStruct((rows, width), jnp.float32)
    made = (
        StageProgram.of("dense", dense, w, x),
        StageProgram.of("dense_grad", dense_grad, w, x, x, sums=(0,)),
        StageProgram.of("loss_grad", jax.grad(loss), x, x),
        StageProgram.of("update", update, w, w, donates=(0,)),
    )
    return {op.word: op for op in made}


def arrays() -> list[np.ndarray]:
    """w1, w2, x, y."""
    random = np.random.default_rng(0)
    return [random.normal(size=size).astype(np.float32) for size in ((16, 16), (16, 16), (8, 16), (8, 16))]


def one_device() -> list[np.ndarray]:
    """The updated parameters."""
    w1, w2, x, y = arrays()
    gradients = jax.grad(lambda w1, w2: loss(dense(w2, dense(w1, x)), y), argnums=(0, 1))(w1, w2)
    return [np.asarray(update(w, dw)) for w, dw in zip((w1, w2), gradients, strict=True)]
