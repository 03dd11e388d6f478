"""Conversions between element types, as ONNX defines them: saturating for narrow floats, rounding as asked.

Floor: onnx.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from hlosharding.onnx.element_types import dtype_of, is_float

_SCALE = np.dtype(ml_dtypes.float8_e8m0fnu)
_SATURATING = frozenset(
    np.dtype(t)
    for t in (
        ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float4_e2m1fn,
    )
)  # fmt: skip

_WRAPPING = frozenset(np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2))
"""What does not fit keeps its lowest bits."""


def cast_to(x: Any, to: int, *, saturate: bool = True, round_mode: str = "up") -> Any:
    """`x` in the type of a `TensorProto.DataType`."""
    return converted_to_dtype(x, dtype_of(to), saturate=saturate, round_mode=round_mode)


def converted_to_dtype(x: Any, dtype: Any, *, saturate: bool = True, round_mode: str = "up") -> Any:
    """`x` in another type."""
    x = jnp.asarray(x)
    if _SCALE in (x.dtype, dtype):  # which has neither zero nor a sign
        x = x.astype(jnp.float32)
    if dtype == _SCALE:
        return _power_of_two(x, saturate, round_mode)
    if not is_float(x.dtype):
        return x.astype(dtype)
    if dtype in _SATURATING and saturate and x.dtype not in _SATURATING:
        return _saturated(x, dtype).astype(dtype)
    if dtype in _WRAPPING:
        # By way of 32 bits: from real numbers at once, 20 becomes 7 in int4, for conversions saturate; ONNX has 4.
        return x.astype(jnp.int32).astype(dtype)
    return x.astype(dtype)


def _saturated(x: Any, dtype: Any) -> Any:
    largest = float(ml_dtypes.finfo(dtype).max)
    return jnp.where(jnp.isnan(x), x, jnp.clip(x, -largest, largest))


def _power_of_two(x: Any, saturate: bool, round_mode: str) -> Any:
    """An exponent alone, for scales of blocks: numbers between two powers go as `round_mode` says."""
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    half = 1 << 22
    goes_up = {
        "up": fraction > 0,
        "down": jnp.zeros(x.shape, bool),
        "nearest": (fraction > half) | ((fraction == half) & (exponent > 0)),
    }[round_mode]
    is_special = exponent == 0xFF
    exponent = jnp.where(goes_up & ~is_special, exponent + 1, exponent)
    if saturate:
        exponent = jnp.where(jnp.isnan(x), exponent, jnp.minimum(exponent, 0xFE))
    return lax.bitcast_convert_type(exponent.astype(jnp.uint8), jnp.float8_e8m0fnu)
