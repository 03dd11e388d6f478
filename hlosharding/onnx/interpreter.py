"""The walk over a model's nodes while JAX traces: each node becomes what its operator's function does.

Floor: onnx.  What is known before anything runs is not traced but computed; everything else is traced under the
node's name.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_nodes, check_size
from hlosharding.onnx.graph import Node, OnnxGraph, Weight
from hlosharding.onnx.known import KnownOutputs, is_computable
from hlosharding.onnx.node_errors import errors_at
from hlosharding.onnx.operators import OPERATORS, MustBeKnown, Operator
from hlosharding.onnx.schemas import type_complaint
from hlosharding.onnx.values import Entry, OnnxValue, trace_entry, unwrap_entry, wrap_result

_FOLDED = 200_000
"""Combinations of elements of its inputs up to which a node of known values is computed while the model is read."""
_FEW = 16
"""Numbers that say sizes; where there are more, the traced function says what comes of them."""
_LITERAL = 1024
"""Elements up to which a known value is written into the program; a larger one is computed there."""

Environment = MutableMapping[str, Entry]


@dataclass(frozen=True)
class Interpreter:
    """Traces graphs."""

    weights: Mapping[Weight, Any]
    """Their traced values."""
    scope: Callable[[Node], str]
    mark: Callable[[Any, str], Any]
    """Gives a traced tensor its name."""
    laid_out: Callable[[Node, str, Any], Any]
    """A traced tensor of that name as the node's device annotation wants it."""
    _met: set[int] = field(default_factory=set)
    """Numbers of nodes that were traced; in loops they come again."""

    def run(self, graph: OnnxGraph, given: Mapping[str, Entry], outer: Environment | None = None) -> tuple[Entry, ...]:
        """The outputs of a graph whose inputs are `given`; names of `outer` graphs are seen inside."""
        names: Environment = ChainMap({}, outer if outer is not None else {})
        names.update({name: self._constant(constant) for name, constant in graph.constants.items()})
        names.update(given)
        for node in graph.nodes:
            names.update(zip(node.outputs, self._node(node, names), strict=False))
        return tuple(names[name] if name else None for name in graph.outputs)

    def _constant(self, constant: np.ndarray | Weight) -> OnnxValue:
        if isinstance(constant, Weight):
            return OnnxValue(self.weights[constant], evaluate=lambda: constant.value)
        return OnnxValue(known=constant)

    def _node(self, node: Node, names: Environment) -> Sequence[Entry]:
        with errors_at(str(node)):
            if node.number in self._met:
                charge_nodes(1)
            self._met.add(node.number)
            found = self._outputs(node, [names[name] if name else None for name in node.inputs], names)
            for name in filter(None, node.outputs[len(found) :]):
                raise LoadError(f"it does not give {name!r}")
            return found

    def _outputs(self, node: Node, inputs: Sequence[Entry], names: Environment) -> Sequence[Entry]:
        operator = _operator(node)
        tensors = [entry for entry in inputs if not isinstance(entry, list)]
        _check_inputs(node, inputs)
        if len(tensors) < len(inputs) or not is_computable(node):
            return self._traced(node, operator, inputs, names)
        if all(v is None or v.is_constant for v in tensors) and self._is_small(node, operator, tensors):
            values = KnownOutputs(node, tensors).evaluate()
            # `_is_small` bounds what it costs to compute, this what is written into the program.
            if values is not None and max((v.size for v in values), default=0) <= _LITERAL:
                return [OnnxValue(known=value) for value in values]
        outputs = self._traced(node, operator, inputs, names)
        # Nothing is computed yet: the bytes are charged when somebody must know a value.
        known = KnownOutputs(node, tensors, _bytes(outputs))
        for number, output in enumerate(outputs):
            if isinstance(output, OnnxValue) and output.evaluate is None:
                output.evaluate = partial(known.output, number)
        return outputs

    def _is_small(self, node: Node, operator: Operator, inputs: Sequence[OnnxValue | None]) -> bool:
        """Is what a node gives of known values small for sure?  Asked before it is computed."""
        read = math.prod(max(1, n) for v in inputs if v is not None for n in np.shape(v.array))
        if read > _FOLDED:
            return False
        # So that shape arithmetic is traced for its sizes, as below, only where the numbers in it are large.
        if read * _most(operator, inputs) <= _FOLDED:
            return True
        import jax

        found = jax.eval_shape(lambda: self._called(node, operator, inputs, self._attributes(node, operator, {})))
        return max((leaf.size for leaf in jax.tree.leaves(found)), default=0) <= _LITERAL

    def _traced(self, node: Node, operator: Operator, inputs: Sequence[Entry], names: Environment) -> list[Entry]:
        import jax

        with jax.named_scope(self.scope(node)):
            found = self._called(node, operator, inputs, self._attributes(node, operator, names))
            outputs = found if isinstance(found, tuple) else (found,)
            _check_types(node, outputs)
            return [self._named(node, output, name) for output, name in zip(outputs, node.outputs, strict=False)]

    def _called(self, node: Node, operator: Operator, inputs: Sequence[Entry], attributes: Mapping[str, Any]) -> Any:
        arguments = [self._argument(node, operator, n, entry) for n, entry in enumerate(inputs)]
        while True:
            try:
                return operator.function(*arguments, **attributes)
            except MustBeKnown as wanted:
                position = operator.inputs.index(wanted.name)
                given = arguments[position] if position < len(arguments) else None
                if given is None or isinstance(given, np.ndarray):
                    # It is known, or was never given: asked again, the function would say the same.
                    raise wanted.__cause__ or LoadError("its shapes depend on values of the run") from None
                arguments[position] = _known(inputs[position])

    def _argument(self, node: Node, operator: Operator, position: int, entry: Entry) -> Any:
        if operator.is_static(position):
            return _known(entry)
        value = unwrap_entry(entry) if operator.may_be_known(position) else trace_entry(entry)
        return self.laid_out(node, node.inputs[position], value) if isinstance(entry, OnnxValue) else value

    def _attributes(self, node: Node, operator: Operator, names: Environment) -> dict[str, Any]:
        unknown = sorted(set(node.attributes) - operator.attributes)
        if unknown:
            raise LoadError(f"attribute {unknown[0]!r} is not handled")
        attributes = {
            name: _Subgraph(self, value, names) if isinstance(value, OnnxGraph) else value
            for name, value in node.attributes.items()
        }
        return attributes | ({"node": node} if "node" in operator.attributes else {})

    def _named(self, node: Node, found: Any, name: str) -> Entry:
        entry = wrap_result(found)
        if not isinstance(entry, OnnxValue) or entry.is_constant or not name:
            return entry
        return OnnxValue(self.mark(self.laid_out(node, name, entry.array), name), evaluate=entry.evaluate)


@dataclass(frozen=True)
class _Subgraph:
    """A graph inside a node, as the node's function calls it: numpy arrays are known values inside."""

    interpreter: Interpreter
    graph: OnnxGraph
    outer: Environment

    def entries(self, *arguments: Any) -> tuple[Entry, ...]:
        given = {port.name: wrap_result(a) for port, a in zip(self.graph.inputs, arguments, strict=True)}
        return self.interpreter.run(self.graph, given, self.outer)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        return tuple(unwrap_entry(entry) for entry in self.entries(*arguments))


def _known(entry: Entry) -> np.ndarray | None:
    if isinstance(entry, list):
        raise LoadError("a sequence, where a tensor is wanted")
    return entry.static() if entry is not None else None


def _operator(node: Node) -> Operator:
    found = OPERATORS.get((node.domain, node.op_type))
    if found is None:
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        raise LoadError(f"operator {operator} is not handled", where=str(node))
    return found


def _most(operator: Operator, inputs: Sequence[OnnxValue | None]) -> float:
    """For each combination of elements that it reads an operator gives no more elements than so many.

    Sizes are sums and products of the numbers that say them; of real numbers, quotients as well.
    """
    most = 1
    for value in (v for n, v in enumerate(inputs) if v is not None and operator.is_static(n)):
        numbers = value.static()
        if numbers.dtype.kind not in "biu" or numbers.size > _FEW:
            return math.inf
        most *= math.prod(abs(int(number)) + 2 for number in numbers.reshape(-1))
    return most


def _bytes(outputs: Sequence[Entry]) -> int:
    return sum(int(v.array.size) * v.array.dtype.itemsize for v in outputs if isinstance(v, OnnxValue))


def _check_inputs(node: Node, inputs: Sequence[Entry]) -> None:
    dtypes = tuple(np.dtype(v.array.dtype) if isinstance(v, OnnxValue) else None for v in inputs)
    wrong = type_complaint(node.op_type, dtypes) if not node.domain else None
    if wrong is not None:
        raise LoadError(wrong)


def _check_types(node: Node, outputs: Sequence[Any]) -> None:
    """What a function gives has the type that ONNX infers: JAX's own promotions are others."""
    for output, dtype, name in zip(outputs, node.output_types, node.outputs, strict=False):
        if not hasattr(output, "dtype"):
            continue
        check_size(output.shape, output.dtype)
        if dtype is not None and output.dtype != dtype:
            raise LoadError(f"gives {name!r} as {output.dtype}, and ONNX wants {dtype}", where=str(node))
