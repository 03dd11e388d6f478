"""One ONNX node, loaded and run on one device."""

from __future__ import annotations

from typing import Any

import numpy as np

import hlosharding as hs
from tests.support.program_check import one_device


def loaded_and_run(model: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model for these inputs."""
    module = hs.load(model, inputs=inputs)
    arguments = [np.asarray(module.weights.get(p.name, inputs.get(p.op_name))) for p in module.entry.parameters]
    return one_device(module, arguments)


def node_model(operator: str, inputs: dict[str, Any], outputs: int, domain: str, attributes: dict[str, Any]) -> Any:
    """A model of one node; an input that is None is left out."""
    from onnx import helper

    given = {name: np.asarray(value) for name, value in inputs.items() if value is not None}
    names = [name if value is not None else "" for name, value in inputs.items()]
    found = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(operator, names, found, domain=domain, **attributes)
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    graph = helper.make_graph([node], "node", ports, [helper.make_empty_tensor_value_info(name) for name in found])
    opsets = [helper.make_opsetid("", 26), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=13)


def run_node(operator: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> list[np.ndarray]:
    """What a node gives for these inputs."""
    named = {f"x{n}": value for n, value in enumerate(inputs)}
    model = node_model(operator, named, outputs, domain, attributes)
    return loaded_and_run(model, {name: np.asarray(value) for name, value in named.items() if value is not None})
