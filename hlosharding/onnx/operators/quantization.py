"""Numbers of few bits, and back: per tensor, per axis, in blocks.

Floor: onnx.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.element_types import dtype_of, is_float, precision_of
from hlosharding.onnx.operators.casting import converted_to_dtype
from hlosharding.onnx.operators.table import MICROSOFT, operator


def along(values: Any, like: Any, axis: int, block_size: int = 0) -> Any:
    """Scales or zero points as they broadcast against the tensor that they belong to.

    >>> along(np.ones(3), np.ones((2, 3, 4)), 1).shape
    (1, 3, 1)
    >>> along(np.ones((2, 2)), np.ones((2, 5)), 1, block_size=3).shape
    (2, 5)
    """
    if np.size(values) == 1 and not block_size:
        return jnp.reshape(values, ())
    axis = axis % like.ndim
    if block_size:
        wide = jnp.repeat(jnp.asarray(values), block_size, axis)
        return wide[(slice(None),) * axis + (slice(0, like.shape[axis]),)]
    return jnp.reshape(values, [-1 if dim == axis else 1 for dim in range(like.ndim)])


def quantize(ratio: Any, zero_point: Any, dtype: Any, *, saturate: bool = True) -> Any:
    """A tensor, divided by its scale already, in a type of few bits; `zero_point` None: 0.

    >>> quantize(jnp.array([0.5, 1.5, 300.0]), 1, np.uint8).tolist()
    [1, 3, 255]
    """
    if is_float(dtype):
        return converted_to_dtype(ratio, dtype, saturate=saturate)
    rounded = jnp.round(ratio.astype(jnp.promote_types(ratio.dtype, jnp.float32)))
    # Behind the rounding: halves go to even numbers, and with an odd zero point those would be the others.
    if zero_point is not None:
        rounded = rounded + jnp.asarray(zero_point).astype(rounded.dtype)
    return jnp.clip(rounded, *limits(dtype)).astype(dtype)


def limits(dtype: Any) -> tuple[int, int]:
    """The least and the largest whole number of a type.

    >>> limits(ml_dtypes.int4)
    (-8, 7)
    """
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def dequantize(x: Any, scale: Any, zero_point: Any = None) -> Any:
    """(x - zero point) * scale, in float32 or wider.

    >>> dequantize(jnp.uint8([1, 3]), jnp.float32(0.5), jnp.uint8(1)).tolist()
    [0.0, 1.0]
    """
    if zero_point is None or is_float(x.dtype):
        wide = jnp.asarray(x).astype(jnp.float32)
    else:
        wide = subtract_zero(x, zero_point).astype(jnp.float32)
    return wide * jnp.asarray(scale).astype(jnp.promote_types(jnp.float32, scale.dtype))


def subtract_zero(x: Any, zero_point: Any) -> Any:
    """x - zero point in 32 bits, exactly.

    >>> subtract_zero(jnp.uint8([0, 255]), jnp.uint8(128)).tolist()
    [-128, 127]
    """
    x = jnp.asarray(x).astype(jnp.int32)
    return x if zero_point is None else x - jnp.asarray(zero_point).astype(jnp.int32)


@operator("QuantizeLinear", 28)
def _quantize_linear(
    x: Any, scale: Any, zero_point: Any = None,
    *, axis: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Any:  # fmt: skip
    dtype = zero_point.dtype if zero_point is not None else dtype_of(output_dtype) if output_dtype else np.uint8
    if output_dtype and dtype_of(output_dtype) != dtype:
        raise LoadError(f"output_dtype is {dtype_of(output_dtype)}, and the zero point is {dtype}")
    if np.dtype(dtype).itemsize > 2 or dtype == np.bool_:
        raise LoadError(f"output_dtype is {dtype}, and numbers are quantised to 16 bits at most")
    in_precision = precision_of(precision) if precision else _divided_in(x.dtype, scale.dtype)
    ratio = x.astype(in_precision) / along(scale, x, axis, block_size).astype(in_precision)
    zero = None if zero_point is None else along(zero_point, x, axis, block_size)
    return quantize(ratio, zero, dtype, saturate=bool(saturate))


def _divided_in(x: Any, scale: Any) -> Any:
    """The wider of both types; a scale that is a mere power of two has none of its own."""
    types = [t for t in (x, scale) if is_float(t) and t != ml_dtypes.float8_e8m0fnu]
    return jnp.result_type(*types) if types else jnp.float32


@operator("DequantizeLinear", 28)
def _dequantize_linear(
    x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:
    zero = None if zero_point is None else along(zero_point, x, axis, block_size)
    wide = dequantize(x, along(scale, x, axis, block_size), zero)
    return wide.astype(dtype_of(output_dtype) if output_dtype else scale.dtype)


@operator("QuantizeLinear", 1, domain=MICROSOFT)
def _quantize_linear_of_microsoft(x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1) -> Any:
    return _quantize_linear(x, scale, zero_point, axis=axis)


@operator("DequantizeLinear", 1, domain=MICROSOFT)
def _dequantize_linear_of_microsoft(x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1) -> Any:
    return _dequantize_linear(x, scale, zero_point, axis=axis)


@operator("DynamicQuantizeLinear", 11)
def dynamically_quantized(x: Any) -> Any:
    """A tensor in 8 bits, its scale and its zero point, such that its smallest and largest number can be said.

    >>> [a.tolist() for a in dynamically_quantized(jnp.float32([-1.0, 0.0, 1.55]))]
    [[0, 100, 255], 0.009999999776482582, 100]
    """
    low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
    scale = jnp.where(low == high, 1, (high - low) / 255).astype(x.dtype)
    zero_point = quantize(-low / scale, None, np.uint8)
    return quantize(x / scale, zero_point, np.uint8), scale, zero_point
