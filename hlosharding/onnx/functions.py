"""A model's own functions: each call becomes the nodes of the body, if that is no more than a model may ask for.

Floor: onnx.  Knows protos only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from hlosharding.errors import AnnotationError, LoadError
from hlosharding.onnx.budget import charge_bytes, charge_nodes
from hlosharding.onnx.protos import all_nodes, domain_of, first_line, label_of, nodes_of

_UNCOUNTED = 1 << 62
"""No count beyond it matters; functions that double ask for numbers of any length."""


class _Key(NamedTuple):
    """By what a call finds its function."""

    domain: str
    name: str
    overload: str


class _BodySize(NamedTuple):
    """Of a body with all that it calls."""

    nodes: int
    bytes: int

    def plus(self, other: _BodySize, times: int) -> _BodySize:
        return _BodySize(*(min(mine + times * more, _UNCOUNTED) for mine, more in zip(self, other, strict=True)))


def with_functions_inlined(model: Any) -> Any:
    """Each call of a function of the model's own is the nodes of its body; annotations of these stay.

    Raises AnnotationError for those of a call: nodes of the body would be without them; LoadError for functions that
    call each other in circles, or that come too often.
    """
    if not model.functions:
        return model
    own = {_Key(domain_of(function), function.name, function.overload): function for function in model.functions}
    for node in all_nodes(model):
        if node.device_configurations and _called(node) in own:
            raise AnnotationError(
                "a call of a local function has device annotations",
                where=label_of(node),
                remedy="annotate the nodes of the function, or inline it: onnx.inliner",
            )
    _state_defaults(model, own)
    _charge_growth(model, own)
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:
        raise LoadError(f"local functions cannot be inlined: {first_line(error)}") from error


def _called(node: Any) -> _Key:
    return _Key(domain_of(node), node.op_type, node.overload)


def _state_defaults(model: Any, own: Mapping[_Key, Any]) -> None:
    """Each call gives the attributes for which its function has values: onnx's inliner does not know these."""
    for node in all_nodes(model):
        if (function := own.get(_called(node))) is not None:
            given = {attribute.name for attribute in node.attribute}
            missing = [default for default in function.attribute_proto if default.name not in given]
            charge_bytes(sum(default.ByteSize() for default in missing))
            node.attribute.extend(missing)


def _charge_growth(model: Any, own: Mapping[_Key, Any]) -> None:
    """Charges what the model gains when each call is a body.  Raises LoadError."""
    calls = {key: _calls(function, own) for key, function in own.items()}
    sizes: dict[_Key, _BodySize] = {}
    try:
        # Callees come first: they are what the sorter takes for predecessors.
        for key in TopologicalSorter(calls).static_order():
            sizes[key] = _with_calls(_own_size(own[key]), calls[key], sizes)
    except CycleError as error:
        raise LoadError(f"local functions call each other in a circle: {error.args[1][0].name!r}") from error
    whole = _with_calls(_own_size(model.graph), _calls(model.graph, own), sizes)
    there = [_own_size(part) for part in (model.graph, *own.values())]
    charge_nodes(max(0, whole.nodes - sum(size.nodes for size in there)))
    charge_bytes(max(0, whole.bytes - sum(size.bytes for size in there)))


def _calls(graph: Any, own: Mapping[_Key, Any]) -> Counter[_Key]:
    return Counter(key for node in nodes_of(graph) if (key := _called(node)) in own)


def _own_size(graph: Any) -> _BodySize:
    return _BodySize(sum(1 for _ in nodes_of(graph)), graph.ByteSize())


def _with_calls(size: _BodySize, calls: Counter[_Key], sizes: Mapping[_Key, _BodySize]) -> _BodySize:
    for key, times in calls.items():
        size = size.plus(sizes[key], times)
    return size
