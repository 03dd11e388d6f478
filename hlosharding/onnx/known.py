"""What a node gives where all that it reads is known: computed by ONNX's own reference evaluator.

Floor: onnx.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.arrays import evaluated
from hlosharding.onnx.budget import charge_bytes
from hlosharding.onnx.graph import Node, OnnxGraph
from hlosharding.onnx.node_errors import errors_at
from hlosharding.onnx.values import OnnxValue

_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)


_WINDOWED = frozenset({"auto_pad", "kernel_shape", "pads"})
"""Attributes by which a few elements are padded to any number; and such operators the evaluator computes in Python."""


def is_computable(node: Node) -> bool:
    """Can the evaluator compute it: an operator of ONNX without graphs inside, without chance and without windows?"""
    has_graphs = any(isinstance(a, OnnxGraph) for a in node.attributes.values())
    return not (node.domain or has_graphs or node.op_type in _RANDOM or _WINDOWED & node.attributes.keys())


class KnownOutputs:
    """The outputs of one node from the values of its inputs, computed at most once."""

    def __init__(self, node: Node, inputs: Sequence[OnnxValue | None], size: int = 0) -> None:
        self._node, self._inputs, self._size = node, inputs, size
        """`size`: bytes of the outputs, where they are more than a few."""

    @cached_property
    def all(self) -> tuple[np.ndarray, ...]:
        """Raises LoadError where an input is not known, or the evaluator cannot do it."""
        named = zip(self._node.inputs, self._inputs, strict=True)
        values = {name: value.static() for name, value in named if value is not None}
        with errors_at(str(self._node)):
            charge_bytes(self._size)
        try:
            return evaluated(self._node.proto, values)
        except Exception as error:
            raise LoadError(f"its value cannot be computed beforehand: {error}", where=str(self._node)) from error

    def output(self, number: int) -> np.ndarray:
        """One of them."""
        return self.all[number]

    def evaluate(self) -> tuple[np.ndarray, ...] | None:
        """All of them; None where that cannot be."""
        try:
            return self.all
        except LoadError:
            return None
