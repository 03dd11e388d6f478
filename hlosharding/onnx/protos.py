"""What is asked of an `onnx.ModelProto` in more than one place.

Floor: onnx.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hlosharding.errors import LoadError
from hlosharding.onnx.wire_checks import check_wire

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


def is_onnx(source: Any) -> bool:
    """Is it an `onnx.ModelProto`, or the bytes of one?

    These begin with the version of the format; other programs begin with a name, or are text.

    >>> is_onnx(bytes([8, 11])), is_onnx("HloModule m")
    (True, False)
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source[:1]) == b"\x08"
    return hasattr(source, "graph") and hasattr(source, "opset_import")


def read_model(source: Any) -> Any:
    """The `onnx.ModelProto` of a serialized one, or a copy of one.  Raises LoadError."""
    import onnx

    model = onnx.ModelProto()
    if isinstance(source, onnx.ModelProto):
        model.CopyFrom(source)
        check_wire(model)
        return model
    if not isinstance(source, bytes | bytearray | memoryview):
        raise LoadError(f"a {type(source).__name__} is no ONNX model", remedy="give an onnx.ModelProto, or its bytes")
    from google.protobuf.message import DecodeError

    try:
        model.ParseFromString(bytes(source))
    except DecodeError as error:
        raise LoadError(f"not an ONNX model: {error}", remedy="give the bytes of an onnx.ModelProto") from error
    if not model.HasField("graph"):
        raise LoadError("not an ONNX model: it has no graph", remedy="give the bytes of an onnx.ModelProto")
    check_wire(model)
    return model


def all_nodes(model: Any) -> Iterator[Any]:
    """Every node of a model: those of graphs inside nodes, and of local functions, too."""
    yield from nodes_of(model.graph)
    for function in model.functions:
        yield from nodes_of(function)


def nodes_of(graph: Any) -> Iterator[Any]:
    """Every node of a graph, each before those of the graphs inside it."""
    for node in graph.node:
        yield node
        yield from nodes_inside(node)


def nodes_inside(node: Any) -> Iterator[Any]:
    """Every node of the graphs inside one."""
    for graph in graphs_of(node.attribute):
        yield from nodes_of(graph)


def graphs_of(attributes: Iterable[Any]) -> Iterator[Any]:
    """The graphs that attributes hold."""
    for attribute in attributes:
        yield from (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs)


def all_tensors(model: Any) -> Iterator[Any]:
    """Every `onnx.TensorProto` of a model: weights, those in attributes of nodes, parts of sparse ones."""
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_attributes(function.attribute_proto)
        for node in function.node:
            yield from _tensors_of_attributes(node.attribute)


def _tensors_of_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _tensors_of_attributes(node.attribute)


def _tensors_of_attributes(attributes: Iterable[Any]) -> Iterator[Any]:
    for attribute in attributes:
        yield from (*((attribute.t,) if attribute.HasField("t") else ()), *attribute.tensors)
        for sparse in (
            *((attribute.sparse_tensor,) if attribute.HasField("sparse_tensor") else ()),
            *attribute.sparse_tensors,
        ):
            yield from (sparse.values, sparse.indices)
    for graph in graphs_of(attributes):
        yield from _tensors_of_graph(graph)


def domain_of(node: Any) -> str:
    """The set of operators that its operator is of; "" for ONNX's own, which has two names."""
    return "" if node.domain == "ai.onnx" else str(node.domain)


def label_of(node: Any) -> str:
    """By which people know a node: its name; of one without it its operator and first output."""
    return node.name or f"{node.op_type}({next(filter(None, node.output), '')})"


def place_of(node: Any) -> str:
    """Where it stands, for errors."""
    named = f" {node.name!r}" if node.name else ""
    operator = f"{domain_of(node)}.{node.op_type}" if domain_of(node) else node.op_type
    return f"node {operator}{named} -> {', '.join(filter(None, node.output))}"


def first_line(error: Exception) -> str:
    """What a foreign error says first: bare C++ exceptions bring their call stacks."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
