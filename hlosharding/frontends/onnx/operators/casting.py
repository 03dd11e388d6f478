"""Conversions between element types, as ONNX defines them: saturating for narrow floats, rounding as asked.

Floor: frontends.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from hlosharding.errors import LoadError
from hlosharding.frontends.onnx.element_types import dtype_of, is_float

_SATURATING = frozenset(
    np.dtype(t)
    for t in (
        ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float4_e2m1fn,
    )
)  # fmt: skip


def converted(x: Any, to: int, *, saturate: bool = True, round_mode: str = "up") -> Any:
    """`x` in the type of a `TensorProto.DataType`."""
    return converted_to_dtype(x, dtype_of(to), saturate=saturate, round_mode=round_mode)


def converted_to_dtype(x: Any, dtype: Any, *, saturate: bool = True, round_mode: str = "up") -> Any:
    """`x` in another type.  Raises LoadError for ways to round that are not handled."""
    x = jnp.asarray(x)
    if dtype == ml_dtypes.float8_e8m0fnu:
        raise LoadError("conversions to FLOAT8E8M0 are not handled")
    if dtype in _SATURATING and saturate and is_float(x.dtype) and x.dtype not in _SATURATING:
        x = _saturated(x, dtype)
    return x.astype(dtype)


def _saturated(x: Any, dtype: Any) -> Any:
    largest = float(ml_dtypes.finfo(dtype).max)
    return jnp.where(jnp.isnan(x), x, jnp.clip(x, -largest, largest))
