"""Normalisations.

Floor: onnx.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from hlosharding.onnx.element_types import precision_of
from hlosharding.onnx.operators.convolution import along_channels
from hlosharding.onnx.operators.table import operator


@operator("BatchNormalization", 15)
def _batch_normalization(
    x: Any, scale: Any, bias: Any, mean: Any, variance: Any,
    *, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> Any:  # fmt: skip
    if training_mode:
        axes = (0, *range(2, x.ndim))
        now, spread = jnp.mean(x, axes), jnp.var(x, axes)
        out = _normalised(x, scale, bias, now, spread, epsilon)
        moved = [
            (old * momentum + new * (1 - momentum)).astype(old.dtype) for old, new in ((mean, now), (variance, spread))
        ]
        return out, *moved
    return _normalised(x, scale, bias, mean, variance, epsilon)


def _normalised(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: float) -> Any:
    factor = scale / jnp.sqrt(variance + epsilon)
    mean, factor, bias = (along_channels(each, x.ndim) for each in (mean, factor, bias))
    return ((x - mean) * factor + bias).astype(x.dtype)


@operator("InstanceNormalization", 22)
def _instance_normalization(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    axes = tuple(range(2, x.ndim))
    centred = x - jnp.mean(x, axes, keepdims=True)
    normal = centred * lax.rsqrt(jnp.mean(centred * centred, axes, keepdims=True) + epsilon)
    return normal * along_channels(scale, x.ndim) + along_channels(bias, x.ndim)


@operator("GroupNormalization", 21)
def _group_normalization(
    x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Any:
    wide = jnp.reshape(x, (x.shape[0], num_groups, -1)).astype(precision_of(stash_type))
    normal = _standardised(wide, (-1,), epsilon).reshape(x.shape)
    return (normal.astype(x.dtype) * along_channels(scale, x.ndim) + along_channels(bias, x.ndim)).astype(x.dtype)


def _standardised(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    centred = x - jnp.mean(x, axes, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred * centred, axes, keepdims=True) + epsilon)


@operator("LayerNormalization", 17)
def _layer_normalization(
    x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(precision_of(stash_type))
    mean = jnp.mean(wide, axes, keepdims=True)
    centred = wide - mean
    inverse = lax.rsqrt(jnp.mean(centred * centred, axes, keepdims=True) + epsilon)
    out = (centred * inverse).astype(x.dtype) * scale
    return out if bias is None else out + bias, mean, inverse


@operator("RMSNormalization", 23)
def _rms_normalization(x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    return rms_normalized(x, scale, axis, epsilon, stash_type)[0]


def rms_normalized(x: Any, scale: Any, axis: int, epsilon: float, stash_type: int) -> tuple[Any, Any]:
    """The normalized array, and by what it was multiplied."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(precision_of(stash_type))
    inverse = lax.rsqrt(jnp.mean(wide * wide, axes, keepdims=True) + epsilon)
    return ((wide * inverse).astype(x.dtype) * scale).astype(scale.dtype), inverse


@operator("LpNormalization", 22)
def _lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    norm = jnp.sum(jnp.abs(x), axis, keepdims=True) if p == 1 else jnp.sqrt(jnp.sum(x * x, axis, keepdims=True))
    return jnp.where(norm == 0, jnp.zeros((), x.dtype), x / norm)


@operator("MeanVarianceNormalization", 13)
def _mean_variance_normalization(x: Any, *, axes: list[int] | None = None) -> Any:
    dims = tuple(axes if axes is not None else (0, 2, 3))
    mean = jnp.mean(x, dims, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(x * x, dims, keepdims=True) - mean * mean)
    return (x - mean) / (deviation + 1e-9)


@operator("LRN", 13)
def _lrn(x: Any, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Any:
    before = (size - 1) // 2
    window, padding = [1] * x.ndim, [(0, 0)] * x.ndim
    window[1], padding[1] = size, (before, size - 1 - before)
    zero = jnp.zeros((), x.dtype)
    squares = lax.reduce_window(x * x, zero, lax.add, window, [1] * x.ndim, padding)
    return x / (bias + alpha / size * squares) ** beta
