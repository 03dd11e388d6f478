"""Whether every name that a model reads is given before, by a node, an input or a weight, here or in an outer graph.

Floor: onnx.  onnx's converter ends the process on some names that nobody gives.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from hlosharding.errors import LoadError
from hlosharding.onnx.protos import graphs_of, place_of


def check_names(graph: Any, outer: AbstractSet[str] = frozenset()) -> None:
    """Raises LoadError for a name that is not there, with who reads it."""
    given = set(outer)
    given.update(port.name for port in graph.input)
    given.update(tensor.name for tensor in graph.initializer)
    given.update(sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        _check(node.input, given, f"input of {place_of(node)}")
        for inner in graphs_of(node.attribute):
            check_names(inner, given)
        given.update(node.output)
    _check((port.name for port in graph.output), given, f"output of graph {graph.name!r}")


def _check(names: Any, given: AbstractSet[str], role: str) -> None:
    for name in names:
        if name and name not in given:
            raise LoadError(f"no node gives {name!r}, {role}", remedy="check the file with onnx.checker")
