"""Arrays that ONNX's own library makes: of a file's tensors, and of nodes that its evaluator computes.

Floor: onnx.  The only door for them.  ONNX has types that HLO has not (strings, six bits), and a model may make each of
them in many ways: what comes through here has a form in HLO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.element_types import check_dtype, dtype_of


def array_of(tensor: Any) -> np.ndarray:
    """A TensorProto or SparseTensorProto as an array.  Raises LoadError where its data does not fit its shape."""
    try:
        return _dense(tensor) if hasattr(tensor, "indices") else _read(tensor)
    except LoadError:
        raise
    except (ValueError, TypeError, IndexError) as error:
        raise LoadError(f"tensor {getattr(tensor, 'name', '')!r} cannot be read: {error}") from error


def _read(tensor: Any) -> np.ndarray:
    from onnx import numpy_helper

    dtype_of(tensor.data_type)
    return numpy_helper.to_array(tensor)


def _dense(tensor: Any) -> np.ndarray:
    values, indices = _read(tensor.values), _read(tensor.indices)
    charge_array(tensor.dims, values.dtype.itemsize)
    out = np.zeros(tuple(tensor.dims), values.dtype)
    flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), out.shape)
    out[np.unravel_index(flat, out.shape)] = values  # which refuse numbers below 0, as ONNX does
    return out


def evaluated(node: Any, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The outputs of an `onnx.NodeProto`; `inputs` by the names that it reads.

    Raises LoadError for what is no tensor, or has no form in HLO; else whatever the evaluator raises.
    """
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(node).run(None, dict(inputs))
    if not all(isinstance(each, np.ndarray | np.generic) for each in found):
        raise LoadError("its value is no tensor")
    arrays = tuple(map(np.asarray, found))
    for array in arrays:
        check_dtype(array.dtype)
    return arrays
