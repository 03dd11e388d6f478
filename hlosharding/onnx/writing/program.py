"""The program of one device as an ONNX model: the walk over instructions, and what stands around the nodes.

Floor: onnx.  Knows no plan: shapes are local, collectives are there, weights come cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlosharding.ir import Computation, Instruction, Module, Shape
from hlosharding.onnx.element_types import element_type_of
from hlosharding.onnx.operators.table import MICROSOFT
from hlosharding.onnx.writing.graph_writer import GraphWriter, no_form
from hlosharding.onnx.writing.table import WRITERS

OPSET, IR_VERSION = 23, 11
"""Of what is written: the newest that ONNX Runtime 1.23 and later read."""
Value = Any
"""The name of a tensor, or a tuple of such values."""


def write_program(
    module: Module,
    rank: int,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
    metadata: Mapping[str, str],
) -> Any:
    """An `onnx.ModelProto` of what device `rank` does in a partitioned module.

    `inputs`: a name for each parameter of the entry; those in `weights` (local values) become initializers.
    `outputs`: a name for each leaf of its root.  Raises ModuleError for what has no form in ONNX, with op and place.
    """
    from onnx import helper

    out = GraphWriter(rank, max(1, module.num_partitions))
    entry = module.entry
    for name in (*inputs, *outputs):
        out.name(name)
    for name, value in weights.items():
        out.initialize(name, value)
    _refuse_shapes(module)
    root = _Walk(out).computation(entry, list(inputs))
    out.source = None
    for name, value in zip(outputs, _leaves(root), strict=True):
        out.nodes.append(helper.make_node("Identity", [value], [name]))
    parameters = zip(inputs, (p.shape for p in entry.parameters), strict=True)
    graph = helper.make_graph(
        out.nodes,
        module.name,
        [_port(name, shape) for name, shape in parameters if name not in weights],
        [_port(name, shape) for name, shape in zip(outputs, entry.root.shape.leaves, strict=True)],
        out.initializers,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="hlosharding")
    helper.set_model_props(model, dict(metadata))
    return model


def _port(name: str, shape: Shape) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, element_type_of(shape.dtype), shape.dims)


def _refuse_shapes(module: Module) -> None:
    for inst in module.entry.instructions:
        if any(leaf.is_complex or not leaf.is_array for leaf in inst.shape.leaves):
            raise no_form(inst, f"a value of type {inst.shape}")
    for parameter in module.entry.parameters:
        if parameter.shape.is_tuple:
            raise no_form(parameter, "a parameter that is a tuple")


class _Walk:
    def __init__(self, out: GraphWriter) -> None:
        self._out = out

    def computation(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The value of the root, its nodes written."""
        values: dict[Instruction, Value] = dict(zip(computation.parameters, arguments, strict=True))
        for inst in computation.instructions:
            if inst not in values:
                self._out.source = inst
                values[inst] = self._value(inst, [values[o] for o in inst.operands])
        return values[computation.root]

    def _value(self, inst: Instruction, operands: list[Value]) -> Value:
        match inst.opcode:
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                return operands[0][inst.tuple_index]
            case "call":
                return self.computation(inst.called[0], operands)
            case opcode:
                write = WRITERS.get(opcode)
                if write is None:
                    raise no_form(inst)
                return write(self._out, inst, *operands)


def _leaves(value: Value) -> list[str]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, tuple) else [value]
