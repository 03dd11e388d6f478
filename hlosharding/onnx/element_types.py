"""ONNX's element types and the dtypes that hold them.

Floor: onnx.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from hlosharding.errors import LoadError

_TYPES: dict[str, Any] = {
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "FLOAT16": np.float16,
    "BFLOAT16": ml_dtypes.bfloat16,
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
    "INT2": ml_dtypes.int2,
    "UINT2": ml_dtypes.uint2,
    "INT4": ml_dtypes.int4,
    "UINT4": ml_dtypes.uint4,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "INT16": np.int16,
    "UINT16": np.uint16,
    "INT32": np.int32,
    "UINT32": np.uint32,
    "INT64": np.int64,
    "UINT64": np.uint64,
    "BOOL": np.bool_,
    "COMPLEX64": np.complex64,
    "COMPLEX128": np.complex128,
}


def dtype_of(element_type: int) -> np.dtype[Any]:
    """The dtype of a `TensorProto.DataType`.  Raises LoadError for strings and undefined types.

    >>> dtype_of(1), dtype_of(16)
    (dtype('float32'), dtype(bfloat16))
    """
    from onnx import TensorProto

    known = element_type in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(element_type) if known else str(element_type)
    if name not in _TYPES:
        raise _no_form(name)
    return np.dtype(_TYPES[name])


def precision_of(element_type: int) -> np.dtype[Any]:
    """The dtype of a `TensorProto.DataType` to compute in.  Raises LoadError for what is no float of 16 bits or more.

    >>> precision_of(7)
    Traceback (most recent call last):
    ...
    hlosharding.errors.LoadError: is to be computed in int64, which is no float of 16 bits or more
    """
    dtype = dtype_of(element_type)
    if not is_float(dtype) or dtype.itemsize == 1:
        raise LoadError(f"is to be computed in {dtype}, which is no float of 16 bits or more")
    return dtype


_NAMES = {np.dtype(dtype): name for name, dtype in _TYPES.items()}


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Raises LoadError for what HLO has no type of."""
    if dtype not in _NAMES:
        raise _no_form(str(dtype))


def _no_form(name: str) -> LoadError:
    return LoadError(f"tensors of type {name} have no form in HLO", remedy="numbers and truth values have one")


def type_text(dtype: Any) -> str:
    """As ONNX's schemas write the type of its tensors.

    >>> type_text(np.dtype(np.float32))
    'tensor(float)'
    """
    return f"tensor({_NAMES[np.dtype(dtype)].lower()})"


def is_low_precision(dtype: Any) -> bool:
    """Is it a number of at most eight bits that weights are quantised to?

    >>> is_low_precision(np.int8), is_low_precision(np.bool_), is_low_precision(np.float16)
    (True, False, False)
    """
    return np.dtype(dtype).itemsize == 1 and np.dtype(dtype) != np.bool_


def is_float(dtype: Any) -> bool:
    """Is it a real floating point type, those of `ml_dtypes` included?

    >>> is_float(ml_dtypes.bfloat16), is_float(np.int32)
    (True, False)
    """
    import jax.numpy as jnp

    return jnp.issubdtype(dtype, jnp.floating)


def bounds(dtype: Any) -> tuple[Any, Any]:
    """What no value is below, and above: the largest and the smallest of no elements.

    >>> bounds(np.dtype("int8")), bounds(np.dtype("float32"))
    ((-128, 127), (-inf, inf))
    """
    import jax.numpy as jnp

    if dtype == np.bool_:
        return False, True
    if jnp.issubdtype(dtype, jnp.inexact):
        return -np.inf, np.inf
    return int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)


def element_type_of(dtype: Any) -> int:
    """The `TensorProto.DataType` of a dtype.  Raises LoadError where ONNX has none.

    >>> element_type_of(np.float32), element_type_of(ml_dtypes.bfloat16)
    (1, 16)
    """
    from onnx import TensorProto

    check_dtype(np.dtype(dtype))
    return TensorProto.DataType.Value(_NAMES[np.dtype(dtype)])
