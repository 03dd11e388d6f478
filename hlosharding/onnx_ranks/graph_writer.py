"""A graph of ONNX nodes while it is written: nodes, constants, and names that are given once.

Floor: onnx_ranks.  Knows no op of HLO; which function writes an opcode stands in `table.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hlosharding.errors import ModuleError
from hlosharding.ir import Instruction
from hlosharding.onnx import MICROSOFT, element_type_of
from hlosharding.registry import Registry


class GraphWriter:
    """Writes nodes in order.  A value of a program is the name of its tensor."""

    def __init__(self, rank: int, num_ranks: int) -> None:
        self.rank, self.num_ranks = rank, num_ranks
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.source: Instruction | None = None
        """The instruction that is being written: its name and its place go onto the nodes."""
        self.may_diverge = False
        """Are these nodes such that some ranks run and others do not?"""
        self._names: dict[str, int] = {}

    def name(self, wanted: str) -> str:
        """`wanted`, or with a number behind where that is taken."""
        count = self._names.get(wanted)
        self._names[wanted] = (count or 0) + 1
        # Somebody may have asked for that name, too.
        return wanted if count is None else self.name(f"{wanted}_{count}")

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A node of one output; its name."""
        return self.add_all(operator, inputs, 1, domain=domain, **attributes)[0]

    def add_all(self, operator: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """A node of `count` outputs, their names: those of the instruction, as long as they are free."""
        from onnx import helper

        outputs = [self.name(self.source.name if self.source is not None else operator) for _ in range(count)]
        place = self.source.location if self.source is not None else ""
        node = helper.make_node(operator, inputs, outputs, name=outputs[0], doc_string=place or None, **attributes)
        self.nodes.append(node)
        return outputs

    @contextmanager
    def nested(self, *, may_diverge: bool) -> Iterator[tuple[list[Any], list[Any]]]:
        """Nodes and initializers of a graph inside this one, in which tensors have names of their own."""
        outer = self.nodes, self.initializers, self.may_diverge
        # Names stay those of the whole model: in ONNX none of an inner graph may hide an outer one.
        self.nodes, self.initializers, self.may_diverge = [], [], self.may_diverge or may_diverge
        try:
            yield self.nodes, self.initializers
        finally:
            self.nodes, self.initializers, self.may_diverge = outer

    def collective(self, operator: str, value: str, **attributes: Any) -> str:
        """One of ONNX Runtime's operators, in which all ranks take part."""
        return self.add(operator, value, domain=MICROSOFT, **attributes)

    def constant(self, value: Any, name: str = "constant") -> str:
        """An initializer; its type is that of the array."""
        return self.initialize(self.name(name), np.asarray(value))

    def initialize(self, name: str, value: np.ndarray) -> str:
        """An initializer of a name that was given before."""
        from onnx import numpy_helper

        # `ascontiguousarray` makes a vector of a scalar.
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        return name

    def integers(self, values: Sequence[int]) -> str:
        """A list of 64-bit integers, as shapes, axes and bounds are."""
        return self.constant(np.array(values, np.int64))

    def reshape(self, value: str, dims: Sequence[int]) -> str:
        """The same elements, in order, in other dims; a 0 is a dim of no elements."""
        return self.add("Reshape", value, self.integers(dims), allowzero=1)

    def transpose(self, value: str, order: Sequence[int]) -> str:
        """Dim i is dim `order[i]` of the value."""
        return value if list(order) == sorted(order) else self.add("Transpose", value, perm=list(order))

    def slice(self, value: str, axis: int, start: int, limit: int, step: int = 1) -> str:
        """Part of one dim."""
        return self.add("Slice", value, *map(self.integers, ([start], [limit], [axis], [step])))

    def cast(self, value: str, dtype: Any) -> str:
        """The value in another type; what is too large for eight bits is infinite or no number, as in HLO."""
        return self.add("Cast", value, to=element_type_of(dtype), saturate=int("float8" not in np.dtype(dtype).name))

    def reduce(self, kind: str, value: str, axes: Sequence[int]) -> str:
        """Over `axes`, which go, by one of `REDUCER_KINDS`."""
        if kind not in _REDUCE:
            assert self.source is not None, "reductions are of instructions"
            raise no_form(self.source, f"a reduction by {kind!r}")
        return self.add(_REDUCE[kind], value, self.integers(axes), keepdims=0)


_REDUCE = {"add": "ReduceSum", "multiply": "ReduceProd", "maximum": "ReduceMax", "minimum": "ReduceMin"}


def no_form(inst: Instruction, what: str | None = None, *, remedy: str | None = None) -> ModuleError:
    """The error for what ONNX cannot say, with the op and its place."""
    return ModuleError(
        f"{what or f'the op {inst.opcode}'} cannot be written as ONNX",
        where=inst.where,
        remedy=remedy or "write the program without it, or run it with hs.partition(...)",
    )


Writer = Callable[..., Any]
"""Of a GraphWriter, an instruction and the names of its operands, the name of the result."""
WRITERS: Registry[str, Writer] = Registry("ONNX writers")
"""Opcode -> what writes it."""
