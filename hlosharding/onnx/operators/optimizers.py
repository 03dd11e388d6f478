"""One step of training: ONNX's optimisers (domain ai.onnx.preview.training).

Floor: onnx.  Inputs are the rate, the count of updates, then groups: all tensors, all gradients, all states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.table import operator

_TRAINING = "ai.onnx.preview.training"


def _each(groups: Sequence[Any], count: int, update: Callable[..., tuple[Any, ...]]) -> tuple[Any, ...]:
    """`update` of the tensors of each group that belong together; its results group by group."""
    if len(groups) % count:
        raise LoadError(f"{len(groups)} tensors do not make {count} groups")
    size = len(groups) // count
    rows = zip(*(groups[n * size : (n + 1) * size] for n in range(count)), strict=True)
    return tuple(new for group in zip(*(update(*row) for row in rows), strict=True) for new in group)


@operator("Adagrad", 1, domain=_TRAINING)
def _adagrad(
    r: Any, t: Any, *groups: Any, decay_factor: float = 0.0, epsilon: float = 0.0, norm_coefficient: float = 0.0
) -> Any:
    def update(x: Any, g: Any, h: Any) -> tuple[Any, ...]:
        g = norm_coefficient * x + g
        h = h + g * g
        rate = (r / (1 + t * decay_factor)).astype(x.dtype)
        return x - rate * g / (jnp.sqrt(h) + epsilon), h

    return _each(groups, 3, update)


@operator("Adam", 1, domain=_TRAINING)
def _adam(
    r: Any, t: Any, *groups: Any, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 0.0,
    norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> Any:  # fmt: skip
    def update(x: Any, g: Any, v: Any, h: Any) -> tuple[Any, ...]:
        g = norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * (g * g)
        steps = jnp.maximum(t, 1).astype(x.dtype)
        corrected = r * jnp.sqrt(1 - beta**steps) / (1 - alpha**steps)
        rate = jnp.where(t > 0, corrected, r).astype(x.dtype)
        return (1 - norm_coefficient_post) * (x - rate * v / (jnp.sqrt(h) + epsilon)), v, h

    return _each(groups, 4, update)


@operator("Momentum", 1, domain=_TRAINING)
def _momentum(
    r: Any, t: Any, *groups: Any, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> Any:  # fmt: skip
    if mode not in ("standard", "nesterov"):
        raise LoadError(f"mode {mode!r} is not handled")

    def update(x: Any, g: Any, v: Any) -> tuple[Any, ...]:
        g = norm_coefficient * x + g
        v = alpha * v + jnp.where(t > 0, beta, 1).astype(x.dtype) * g
        return x - r.astype(x.dtype) * (g + alpha * v if mode == "nesterov" else v), v

    return _each(groups, 3, update)
