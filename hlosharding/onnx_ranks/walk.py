"""The walk over the instructions of a program: calls inlined, loops as `Loop`, conditionals as `If`.

Floor: onnx_ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hlosharding.ir import Computation, Instruction, Shape, trip_count, while_parts
from hlosharding.onnx import element_type_of
from hlosharding.onnx_ranks.graph_writer import GraphWriter, no_form
from hlosharding.onnx_ranks.table import WRITERS

Value = Any
"""The name of a tensor, or a tuple of such values."""


def port(name: str, shape: Shape) -> Any:
    """An input or output of a graph."""
    from onnx import helper

    return helper.make_tensor_value_info(name, element_type_of(shape.dtype), shape.dims)


class Walk:
    """Writes computations into one graph."""

    def __init__(self, out: GraphWriter) -> None:
        self._out = out

    def computation(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The value of the root, its nodes written."""
        values: dict[Instruction, Value] = dict(zip(computation.parameters, arguments, strict=True))
        for inst in computation.instructions:
            if any(leaf.is_complex or not leaf.is_array for leaf in inst.shape.leaves):
                raise no_form(inst, f"a value of type {inst.shape}")
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
            case "while":
                return self._loop(inst, operands[0])
            case "conditional":
                taken = list(zip(inst.called, operands[1:], strict=True))
                return _tree(inst.shape, iter(self._choose(inst, operands[0], taken)))
            case opcode:
                write = WRITERS.get(opcode)
                if write is None:
                    raise no_form(inst)
                return write(self._out, inst, *operands)

    def _loop(self, inst: Instruction, state: Value) -> Value:
        from onnx import helper

        body, condition = while_parts(inst)
        out, first = self._out, leaves_of(state)
        goes_on = self.computation(condition, [state])
        names = [out.name(f"{inst.name}_{part}") for part in ("trip", "goes_on", *range(len(first)))]
        # Ranks may leave a loop at different trips unless all know the number beforehand.
        with out.nested(may_diverge=not trip_count(inst).is_exact) as (nodes, initializers):
            after = self.computation(body, [_tree(inst.shape, iter(names[2:]))])
            # What a graph gives must be made by its own nodes: a body may hand on a value from outside, or its
            # argument.
            results = [out.add("Identity", v) for v in (self.computation(condition, [after]), *leaves_of(after))]
        types = [Shape.array("s64"), Shape.array("pred"), *inst.shape.leaves]
        taken, given = list(map(port, names, types)), list(map(port, results, types[1:]))
        graph = helper.make_graph(nodes, body.name, taken, given, initializers)
        # Whatever was written inside has named itself.
        out.source = inst
        return _tree(inst.shape, iter(out.add_all("Loop", ["", goes_on, *first], len(first), body=graph)))

    def _choose(self, inst: Instruction, index: str, taken: Sequence[tuple[Computation, Value]]) -> list[str]:
        """Leaves of the first branch or of those behind it; what no branch has takes the last."""
        from onnx import helper

        out, number = self._out, len(inst.called) - len(taken)
        (first, argument), rest = taken[0], taken[1:]
        if not rest:
            return leaves_of(self.computation(first, [argument]))
        is_first = index
        if inst.operands[0].shape.element_type != "pred":
            is_first = out.add("Equal", index, out.constant(np.asarray(number, np.int32)))
        graphs = []
        for branch in (lambda: leaves_of(self.computation(first, [argument])), lambda: self._choose(inst, index, rest)):
            with out.nested(may_diverge=True) as (nodes, initializers):
                results = [out.add("Identity", leaf) for leaf in branch()]
            ports = list(map(port, results, inst.shape.leaves))
            graphs.append(helper.make_graph(nodes, first.name, [], ports, initializers))
        out.source = inst
        return out.add_all("If", [is_first], len(inst.shape.leaves), then_branch=graphs[0], else_branch=graphs[1])


def _tree(shape: Shape, names: Iterator[str]) -> Value:
    """Names of leaves as the tuple that `shape` is."""
    return tuple(_tree(part, names) for part in shape.tuple_shapes) if shape.is_tuple else next(names)


def leaves_of(value: Value) -> list[str]:
    """Names of the tensors in a value."""
    return [leaf for part in value for leaf in leaves_of(part)] if isinstance(value, tuple) else [value]
