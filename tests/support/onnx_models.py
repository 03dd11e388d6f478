"""Small ONNX models, written node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import hlosharding as hs
from tests.support.program_check import one_device

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


def port(name: str, dims: Sequence[Any] | None, element: int = FLOAT) -> ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, element, dims)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 23,
    **options: Any,
) -> Any:
    """An `onnx.ModelProto`."""
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), initializers)
    options.setdefault("ir_version", 11)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **options)


def mlp(rows: Any = 8) -> Any:
    """relu(x @ w + b)."""
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((16, 32), np.float32), "b": random.standard_normal(32, np.float32)}
    nodes = [
        node("MatMul", ["x", "w"], ["h"], name="/fc1/MatMul"),
        node("Add", ["h", "b"], ["hb"], name="/fc1/Add"),
        node("Relu", ["hb"], ["y"]),
    ]
    return model(nodes, [port("x", [rows, 16])], [port("y", [rows, 32])], weights)


def run(proto: Any, **inputs: np.ndarray) -> list[np.ndarray]:
    """The outputs on one device, given all inputs by value."""
    module = hs.load(proto, inputs=inputs)
    given = [inputs[p.op_name] if p.op_name in inputs else module.weights[p.name] for p in module.entry.parameters]
    return one_device(module, given)
