"""Operators that draw numbers, and Dropout.

Floor: onnx.  The program is a function: the same seed gives the same numbers in every run.  They are not those
of other runtimes, which agree on none.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlosharding.onnx.element_types import dtype_of
from hlosharding.onnx.operators.table import MustBeKnown, operator


def _key(seed: float | None, node: Any) -> Any:
    """Of a node without a seed its place in the model is one."""
    # Seeds are real numbers: as whole ones 0.2 and 0.7 would be the same.
    bits = node.number if seed is None else int(np.float32(seed).view(np.uint32))
    return jax.random.key(bits)


@operator("RandomNormal", 22)
def _normal(
    *, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, node: Any
) -> Any:
    drawn = jax.random.normal(_key(seed, node), tuple(shape), jnp.float32)
    return (drawn * scale + mean).astype(dtype_of(dtype))


@operator("RandomNormalLike", 22)
def _normal_like(
    x: Any, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, node: Any
) -> Any:
    drawn = jax.random.normal(_key(seed, node), x.shape, jnp.float32)
    return (drawn * scale + mean).astype(x.dtype if dtype is None else dtype_of(dtype))


@operator("RandomUniform", 22)
def _uniform(
    *, shape: list[int], dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None, node: Any
) -> Any:
    return jax.random.uniform(_key(seed, node), tuple(shape), jnp.float32, low, high).astype(dtype_of(dtype))


@operator("RandomUniformLike", 22)
def _uniform_like(
    x: Any, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None, node: Any
) -> Any:
    drawn = jax.random.uniform(_key(seed, node), x.shape, jnp.float32, low, high)
    return drawn.astype(x.dtype if dtype is None else dtype_of(dtype))


@operator("Bernoulli", 22)
def _bernoulli(x: Any, *, dtype: int | None = None, seed: float | None = None, node: Any) -> Any:
    drawn = jax.random.uniform(_key(seed, node), x.shape, jnp.float32) < x
    return drawn.astype(x.dtype if dtype is None else dtype_of(dtype))


@operator("Multinomial", 22)
def _multinomial(x: Any, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, node: Any) -> Any:
    drawn = jax.random.categorical(_key(seed, node), x[:, None, :], axis=-1, shape=(x.shape[0], sample_size))
    return drawn.astype(dtype_of(dtype))


@operator("Dropout", 22, known="training_mode")
def _dropout(x: Any, ratio: Any = None, training_mode: Any = None, *, seed: int | None = None, node: Any) -> Any:
    if training_mode is not None and not isinstance(training_mode, np.ndarray):
        raise MustBeKnown("training_mode")
    if training_mode is None or not training_mode.reshape(()):
        return x, jnp.ones(x.shape, bool)
    share = jnp.asarray(0.5 if ratio is None else ratio, x.dtype)
    kept = jax.random.uniform(_key(seed, node), x.shape, jnp.float32) >= share
    return jnp.where(kept, x / (1 - share), jnp.zeros((), x.dtype)), kept
