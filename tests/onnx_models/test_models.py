"""Real models give ONNX Runtime's results: on one device, and sharded over eight."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.sharding import MeshInfo
from tests.support.program_check import one_device

pytest.importorskip("torch", reason="no PyTorch: make onnx-models")
pytest.importorskip("transformers", reason="no transformers: make onnx-models")
pytest.importorskip("onnxruntime", reason="no ONNX Runtime: make onnx-models")

from tests.onnx_models.exporting import MODELS, by_onnx_runtime, model

MESH = MeshInfo(("data", "model"), (2, 4))
_TOLERANCE = 1e-4


@cache
def exported(name: str) -> tuple[bytes, dict[str, np.ndarray], list[np.ndarray]]:
    content, inputs = model(name)
    return content, inputs, by_onnx_runtime(content, inputs)


def assert_close(found: Any, expected: list[np.ndarray]) -> None:
    for got, want in zip(found, expected, strict=True):
        largest = np.max(np.abs(want), initial=1e-9)
        assert np.max(np.abs(np.asarray(got, np.float64) - want), initial=0) <= _TOLERANCE * largest


def plan(module: hs.Module) -> dict[str, tuple[str | None, ...]]:
    """Batches over "data"; of each matrix the longest dim that divides over "model"."""
    found: dict[str, tuple[str | None, ...]] = {}
    for parameter in module.entry.parameters:
        dims = parameter.shape.dims
        if parameter.name not in module.weights:
            found[parameter.op_name] = ("data", *(None,) * (len(dims) - 1)) if dims else ()
        elif len(dims) > 1 and any(n % 4 == 0 for n in dims):
            widest = max((n for n in range(len(dims)) if dims[n] % 4 == 0), key=lambda n: dims[n])
            found[parameter.op_name] = tuple("model" if n == widest else None for n in range(len(dims)))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_on_one_device(name: str) -> None:
    content, inputs, expected = exported(name)
    module = hs.load(content, inputs=inputs)
    given = [inputs.get(p.op_name, module.weights.get(p.name)) for p in module.entry.parameters]
    assert_close(one_device(module, given), expected)


@pytest.mark.parametrize("name", MODELS)
def test_on_eight_devices(name: str) -> None:
    content, inputs, expected = exported(name)
    module = hs.load(content, inputs=inputs)
    program = hs.partition(hs.annotate(module, plan(module), mesh=MESH))
    assert program.num_partitions == 8
    given = [inputs[p.op_name] for p in module.entry.parameters if p.op_name in inputs]
    assert_close(program.run(*given), expected)
    assert all(c.location for c in program.collectives), "a collective names no node"
