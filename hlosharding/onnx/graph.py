"""A model's graph as plain values: nodes with decoded attributes, constants, weights; subgraphs likewise.

Floor: onnx.  Decides which constants become parameters of the program, so that they can be sharded.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.arrays import array_of
from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.element_types import dtype_of, is_float, is_low_precision
from hlosharding.onnx.node_errors import errors_at
from hlosharding.onnx.operators import OPERATORS
from hlosharding.onnx.protos import domain_of, label_of, nodes_of, place_of

_MANY = 1024
"""Elements from which a constant of whole numbers is a weight, too."""


@dataclass(frozen=True, eq=False, slots=True)
class Weight:
    """A constant that becomes a parameter of the program."""

    name: str
    value: np.ndarray


@dataclass(frozen=True, eq=False)
class Node:
    """One node, as it stands in its graph."""

    proto: Any
    domain: str
    op_type: str
    number: int
    """In the whole model, from 1: nodes of subgraphs stand behind the node that holds them."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    output_types: tuple[Any, ...]

    @property
    def wanted(self) -> tuple[bool, ...]:
        """Per output: has it a name?"""
        return tuple(bool(name) for name in self.outputs)

    @property
    def label(self) -> str:
        """By which people know it."""
        return label_of(self.proto)

    def __str__(self) -> str:
        return place_of(self.proto)


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """Nodes in order, and what they may read beside each other's outputs."""

    name: str
    inputs: tuple[Any, ...]
    """The `onnx.ValueInfoProto` of each input that is no weight."""
    outputs: tuple[str, ...]
    constants: dict[str, Any]
    """By tensor a numpy array, or a Weight."""
    nodes: tuple[Node, ...]


@dataclass
class Decoder:
    """Reads a graph and those inside it; `weights` are found on the way, in order."""

    weights: list[Weight] = field(default_factory=list)
    _nodes: dict[int, Node] = field(default_factory=dict)
    _found: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def nodes(self) -> list[Node]:
        """All nodes, those of subgraphs too, by number."""
        return [self._nodes[number] for number in sorted(self._nodes)]

    def graph(self, proto: Any, outer: MutableMapping[str, Any] | None = None) -> OnnxGraph:
        """Raises LoadError for tensors and attributes that have no form here."""
        statics = frozenset(_used_for_shapes_only(proto))
        constants: dict[str, Any] = {}
        known = ChainMap[str, Any]({}, outer if outer is not None else {})
        for tensor in (*proto.initializer, *proto.sparse_initializer):
            name = tensor.name if hasattr(tensor, "raw_data") else tensor.values.name
            constants[name] = known[name] = self._constant(name, array_of(tensor), statics)
        types = {v.name: v.type for v in (*proto.value_info, *proto.output)}
        nodes: list[Node] = []
        for node in proto.node:
            with errors_at(place_of(node)):
                value = constant_value(node, known)
                if value is None:
                    nodes.append(self._node(node, types, known))
                    continue
                constants[node.output[0]] = known[node.output[0]] = self._constant(node.output[0], value, statics)
        # Up to version 3 of the format, weights had to be among the inputs.
        inputs = tuple(i for i in proto.input if i.name not in constants)
        return OnnxGraph(proto.name, inputs, tuple(o.name for o in proto.output), constants, tuple(nodes))

    def _constant(self, name: str, value: np.ndarray, statics: frozenset[str]) -> Any:
        if name in statics or not _is_weight(value):
            return value
        self.weights.append(Weight(name, value))
        return self.weights[-1]

    def _node(self, proto: Any, types: dict[str, Any], known: MutableMapping[str, Any]) -> Node:
        number = next(self._found)  # before those of its subgraphs
        self._nodes[number] = Node(
            proto=proto,
            domain=domain_of(proto),
            op_type=proto.op_type,
            number=number,
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            attributes={a.name: self._attribute(a, proto, known) for a in proto.attribute},
            output_types=tuple(_tensor_dtype(types.get(name)) for name in proto.output),
        )
        return self._nodes[number]

    def _attribute(self, attribute: Any, node: Any, known: MutableMapping[str, Any]) -> Any:
        from onnx import AttributeProto, helper

        where = f"attribute {attribute.name!r} of node {node.op_type} {node.name!r}"
        if attribute.ref_attr_name:
            raise LoadError(f"refers to {attribute.ref_attr_name!r} of a function that is not there", where=where)
        match attribute.type:
            case AttributeProto.GRAPH:
                return self.graph(attribute.g, known)
            case AttributeProto.TENSOR:
                return array_of(attribute.t)
            case AttributeProto.STRING:
                return attribute.s.decode(errors="replace")
            case AttributeProto.STRINGS:
                return [s.decode(errors="replace") for s in attribute.strings]
            case AttributeProto.FLOAT | AttributeProto.INT | AttributeProto.FLOATS | AttributeProto.INTS:
                return helper.get_attribute_value(attribute)
            case AttributeProto.TYPE_PROTO:
                return attribute.tp
            case _:
                kind = AttributeProto.AttributeType.Name(attribute.type)
                raise LoadError(f"is of type {kind}, which is not handled", where=where)


_VALUES = ("value", "sparse_value", "value_float", "value_floats", "value_int", "value_ints")


def constant_value(node: Any, known: MutableMapping[str, Any]) -> np.ndarray | None:
    """The value of a Constant, or of a ConstantOfShape whose shape stands in the model; None of other nodes."""
    if domain_of(node):
        return None
    if node.op_type == "Constant":
        return _constant(node)
    shape = known.get(node.input[0]) if node.op_type == "ConstantOfShape" and node.input else None
    if not isinstance(shape, np.ndarray):
        return None
    value = array_of(node.attribute[0].t) if node.attribute else np.zeros(1, np.float32)
    if shape.dtype != np.int64 or shape.ndim != 1 or value.size != 1:
        raise LoadError(f"a ConstantOfShape of {value.size} values in a shape of {shape.dtype}{list(shape.shape)}")
    charge_array(shape, value.dtype.itemsize)
    return np.full(tuple(int(n) for n in shape), value.reshape(()), value.dtype)


def _constant(node: Any) -> np.ndarray:
    from onnx import helper

    if len(node.attribute) != 1 or node.attribute[0].name not in _VALUES:
        names = ", ".join(a.name for a in node.attribute) or "no attribute"
        raise LoadError(f"a Constant with {names} is not handled", where=f"node Constant -> {node.output[0]}")
    [attribute] = node.attribute
    if attribute.name in ("value", "sparse_value"):
        return array_of(attribute.t if attribute.name == "value" else attribute.sparse_tensor)
    value = helper.get_attribute_value(attribute)
    return np.asarray(value, np.float32 if "float" in attribute.name else np.int64)


def _is_weight(value: np.ndarray) -> bool:
    if value.ndim == 0 or value.size < 2:
        return False
    return is_float(value.dtype) or is_low_precision(value.dtype) or value.size >= _MANY


def _used_for_shapes_only(graph: Any) -> Iterator[str]:
    """Names that nodes read, but only where an operator wants values that are known."""
    static: set[str] = set()
    used: set[str] = {output.name for output in graph.output}
    for node in nodes_of(graph):
        operator = OPERATORS.get((domain_of(node), node.op_type))
        for position, name in enumerate(node.input):
            (static if operator is not None and operator.is_static(position) else used).add(name)
    yield from static - used


def _tensor_dtype(type_proto: Any) -> Any:
    """What shape inference said of a tensor; None of what is none, and where it said nothing."""
    if type_proto is None or not type_proto.HasField("tensor_type") or not type_proto.tensor_type.elem_type:
        return None
    return dtype_of(type_proto.tensor_type.elem_type)
