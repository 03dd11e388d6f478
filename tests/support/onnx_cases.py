"""The backend tests that the onnx package brings: models with inputs and expected outputs, as our importer takes them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One model with one set of inputs."""

    name: str
    model: Any
    inputs: dict[str, Any]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float


@cache
def node_cases() -> dict[str, Case]:
    """Every case of ONNX's node tests, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for test in load_model_tests(kind="node") for case in _cases(test)}


def _cases(test: Any) -> Iterator[Case]:
    for number, (inputs, outputs) in enumerate(test.data_sets):
        graph = test.model.graph
        weights = {tensor.name for tensor in graph.initializer}
        names = [port.name for port in graph.input if port.name not in weights]
        given = dict(zip(names, map(array, inputs), strict=False))
        name = test.name if number == 0 else f"{test.name}.{number}"
        yield Case(name, test.model, given, tuple(map(array, outputs)), test.rtol, test.atol)


def array(value: Any) -> Any:
    """A tensor, or a sequence of them, as the tests give it, as numpy arrays."""
    from onnx import TensorProto, numpy_helper

    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [array(each) for each in value]
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
