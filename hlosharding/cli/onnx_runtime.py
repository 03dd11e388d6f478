"""What ONNX Runtime gives for a model, where it is installed: the yardstick that ONNX users trust.

Floor: cli.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError

_NUMPY = {"float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_}
"""By its name for elements; names of whole numbers are numpy's own."""


def is_installed() -> bool:
    """Can it be asked?"""
    return importlib.util.find_spec("onnxruntime") is not None


def outputs_by_onnx_runtime(model: str | bytes, given: Mapping[str, Any]) -> list[np.ndarray]:
    """The outputs of a model, by path or as bytes, on the CPU.  Raises ExecutionError where it does not run it."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    # Errors come as exceptions: what it logs of them itself would stand above our line.
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        feeds = {port.name: _typed(given[port.name], port.type) for port in session.get_inputs()}
        return [np.asarray(found) for found in session.run(None, feeds)]
    except KeyError as error:
        raise ExecutionError(f"ONNX Runtime takes an input {error}, which is no array here") from error
    except Exception as error:
        raise ExecutionError(f"ONNX Runtime does not run this model: {str(error).splitlines()[0]}") from error


def _typed(value: Any, described: str) -> np.ndarray:
    """`described` is "tensor(int64)"."""
    element = described.removeprefix("tensor(").removesuffix(")")
    return np.asarray(value, _NUMPY.get(element, element))
