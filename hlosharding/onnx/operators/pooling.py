"""Pooling: windows reduced to one number each.

Floor: onnx.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.element_types import bounds
from hlosharding.onnx.operators.shapes import ints
from hlosharding.onnx.operators.table import operator
from hlosharding.onnx.operators.windows import Ints, Window, pair_pads, window_over


def _reduced(xs: Any, starts: Any, computation: Any, window: Window) -> Any:
    """`lax.reduce_window` over images [N, C, ...]."""
    return lax.reduce_window(
        xs, starts, computation, (1, 1, *window.kernel), (1, 1, *window.strides),
        ((0, 0), (0, 0), *window.padding), window_dilation=(1, 1, *window.dilations),
    )  # fmt: skip


@operator("MaxPool", 22)
def _max_pool(
    x: Any,
    *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None, kernel_shape: Ints, pads: Ints = None,
    storage_order: int = 0, strides: Ints = None, node: Any,
) -> Any:  # fmt: skip
    window = window_over(
        x.shape[2:], kernel_shape or (), auto_pad=auto_pad, pads=pads, strides=strides, dilations=dilations,
        ceil_mode=ceil_mode,
    )  # fmt: skip
    lowest = np.asarray(bounds(x.dtype)[0], x.dtype)
    if not any(node.wanted[1:]):
        return _reduced(x, lowest, lax.max, window)
    charge_array(window.sizes)
    charge_array(x.shape[:2])
    order = "F" if storage_order else "C"
    numbers = np.arange(math.prod(window.sizes)).reshape(window.sizes)
    # Padding has a place behind all others, so that an element as low as it wins.
    values, found = _reduced(
        (x, jnp.broadcast_to(numbers, x.shape)), (lowest, np.array(numbers.size)), _larger, window
    )  # fmt: skip
    places = jnp.unravel_index(found, window.sizes)
    # A window of padding alone has found that place, which is outside of the image.
    inside = jnp.ravel_multi_index(places, window.sizes, mode="clip", order=order)
    images = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * len(window.sizes)) * numbers.size
    return values, (inside + images).astype(jnp.int64)


def _larger(a: Any, b: Any) -> Any:
    """Of two pairs of value and place that with the larger value; of equal ones the first."""
    first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])


@operator("AveragePool", 22)
def _average_pool(
    x: Any,
    *, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0, dilations: Ints = None,
    kernel_shape: Ints, pads: Ints = None, strides: Ints = None,
) -> Any:  # fmt: skip
    window = window_over(
        x.shape[2:], kernel_shape or (), auto_pad=auto_pad, pads=pads, strides=strides, dilations=dilations,
        ceil_mode=ceil_mode,
    )  # fmt: skip
    return average_windows(x, window, bool(count_include_pad))


def average_windows(x: Any, window: Window, with_padding: bool) -> Any:
    """The mean of each window; `with_padding`: padding that the model asks for counts as elements."""
    charge_array(window.counts)
    counts = reduce(np.multiply.outer, [_counted(window, d, with_padding) for d in range(len(window.sizes))])
    total = _reduced(x, np.zeros((), x.dtype), lax.add, window)
    return total / counts.astype(x.dtype)


def _counted(window: Window, dim: int, with_padding: bool) -> Any:
    low, high = window.pads[dim] if with_padding else (0, 0)
    places = window.places(dim)
    return np.sum((places >= -low) & (places < window.sizes[dim] + high), 1)


@operator("LpPool", 22)
def _lp_pool(
    x: Any,
    *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None, kernel_shape: Ints, p: int = 2,
    pads: Ints = None, strides: Ints = None,
) -> Any:  # fmt: skip
    window = window_over(
        x.shape[2:], kernel_shape or (), auto_pad=auto_pad, pads=pads, strides=strides, dilations=dilations,
        ceil_mode=ceil_mode,
    )  # fmt: skip
    total = _reduced(jnp.abs(x) ** p, np.zeros((), x.dtype), lax.add, window)
    return (total ** (1 / p)).astype(x.dtype)


def _spatial(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool", 22)
def _global_average_pool(x: Any) -> Any:
    return jnp.mean(x, _spatial(x), keepdims=True)


@operator("GlobalMaxPool", 22)
def _global_max_pool(x: Any) -> Any:
    return jnp.max(x, _spatial(x), keepdims=True)


@operator("GlobalLpPool", 22)
def _global_lp_pool(x: Any, *, p: int = 2) -> Any:
    return (jnp.sum(jnp.abs(x) ** p, _spatial(x), keepdims=True) ** (1 / p)).astype(x.dtype)


@operator("MaxUnpool", 22, static="output_shape")
def _max_unpool(
    x: Any, indices: Any, output_shape: Any = None, *, kernel_shape: Ints, pads: Ints = None, strides: Ints = None
) -> Any:
    kernel = list(kernel_shape or ())
    rank = len(kernel)
    rows = zip(x.shape[2:], strides or [1] * rank, kernel, pair_pads(pads or [0] * 2 * rank, rank), strict=True)
    shape = (*x.shape[:2], *((n - 1) * step + k - low - high for n, step, k, (low, high) in rows))
    flat = jnp.zeros(math.prod(shape), x.dtype).at[jnp.ravel(indices)].set(jnp.ravel(x))
    out = jnp.reshape(flat, shape)
    wanted = shape if output_shape is None else ints(output_shape)
    return jnp.pad(out, [(0, after - before) for before, after in zip(shape, wanted, strict=True)])
