"""What ONNX Runtime does to numbers of few bits one by one: back to real numbers, the function, few bits again.

Floor: onnx.  Domain com.microsoft, after its ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.pooling import average_windows
from hlosharding.onnx.operators.quantization import dequantize, quantize, subtract_zero
from hlosharding.onnx.operators.table import MICROSOFT, operator
from hlosharding.onnx.operators.windows import Ints, window_over


def _again(x: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    return quantize(x / scale, zero, dtype)


@operator("QLinearAdd", 1, domain=MICROSOFT)
def _qlinear_add(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c_scale: Any, c_zero: Any = None
) -> Any:
    total = dequantize(a, a_scale, a_zero) + dequantize(b, b_scale, b_zero)
    return _again(total, c_scale, c_zero, a.dtype)


@operator("QLinearMul", 1, domain=MICROSOFT)
def _qlinear_mul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c_scale: Any, c_zero: Any = None
) -> Any:
    product = (subtract_zero(a, a_zero) * subtract_zero(b, b_zero)).astype(jnp.float32)
    return quantize(product * (a_scale * b_scale / c_scale), c_zero, a.dtype)


@operator("QLinearWhere", 1, domain=MICROSOFT)
def _qlinear_where(
    condition: Any, x: Any, x_scale: Any, x_zero: Any, y: Any, y_scale: Any, y_zero: Any, z_scale: Any, z_zero: Any
) -> Any:
    found = jnp.where(condition, dequantize(x, x_scale, x_zero), dequantize(y, y_scale, y_zero))
    return _again(found, z_scale, z_zero, x.dtype)


@operator("QLinearSigmoid", 1, domain=MICROSOFT)
def _qlinear_sigmoid(x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None) -> Any:
    return _again(jax.nn.sigmoid(dequantize(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)


@operator("QLinearLeakyRelu", 1, domain=MICROSOFT)
def _qlinear_leaky_relu(
    x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None, *, alpha: float = 0.01
) -> Any:
    wide = dequantize(x, x_scale, x_zero)
    return _again(jnp.where(wide >= 0, wide, wide * alpha), y_scale, y_zero, x.dtype)


@operator("QLinearSoftmax", 1, domain=MICROSOFT)
def _qlinear_softmax(
    x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None, *, axis: int = -1, opset: int
) -> Any:
    # Before opset 13 a softmax went over all dims from its axis on.
    dims = tuple(range(axis % x.ndim, x.ndim)) if opset < 13 else axis
    return _again(jax.nn.softmax(dequantize(x, x_scale, x_zero), dims), y_scale, y_zero, x.dtype)


@operator("QLinearConcat", 1, domain=MICROSOFT)
def _qlinear_concat(y_scale: Any, y_zero: Any, *inputs: Any, axis: int) -> Any:
    if len(inputs) % 3:
        raise LoadError(f"{len(inputs)} inputs, where each tensor comes with its scale and zero point")
    parts = zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    return jnp.concatenate([_again(dequantize(*part), y_scale, y_zero, y_zero.dtype) for part in parts], axis)


def _on_channels_first(x: Any, channels_last: int, function: Callable[[Any], Any]) -> Any:
    return jnp.moveaxis(function(jnp.moveaxis(x, -1, 1)), 1, -1) if channels_last else function(x)


@operator("QLinearGlobalAveragePool", 1, domain=MICROSOFT)
def _qlinear_global_average_pool(
    x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any, *, channels_last: int = 0
) -> Any:
    dims = tuple(range(1, x.ndim - 1) if channels_last else range(2, x.ndim))
    total = jnp.sum(subtract_zero(x, x_zero), dims, keepdims=True, dtype=jnp.int32)
    count = np.float32(np.prod([x.shape[dim] for dim in dims]))
    return quantize(total.astype(jnp.float32) * (x_scale / (count * y_scale)), y_zero, x.dtype)


@operator("QLinearAveragePool", 1, domain=MICROSOFT)
def _qlinear_average_pool(
    x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None,
    *, auto_pad: str = "NOTSET", ceil_mode: int = 0, channels_last: int = 0, count_include_pad: int = 0,
    kernel_shape: list[int], pads: Ints = None, strides: Ints = None,
) -> Any:  # fmt: skip
    sizes = x.shape[1:-1] if channels_last else x.shape[2:]
    window = window_over(sizes, kernel_shape, auto_pad=auto_pad, pads=pads, strides=strides, ceil_mode=ceil_mode)
    # Unlike AveragePool it counts what ceil_mode adds as padding.
    window = replace(window, pads=window.padding)

    def pooled(image: Any) -> Any:
        return average_windows(dequantize(image, x_scale, x_zero), window, bool(count_include_pad))

    return _again(_on_channels_first(x, channels_last, pooled), y_scale, y_zero, x.dtype)
