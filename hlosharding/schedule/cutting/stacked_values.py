"""Values of all layers in one array: those that are had in parts, and the ops that are done part by part.

Floor: schedule.  From the stacks of loops over layers on: an op whose rules say that rows are independent has its
result in parts where an operand is, and needs its operands so where its result is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from hlosharding.ir import ELEMENTWISE, Instruction, is_neutral
from hlosharding.rules import Nothing, Reduce, Signature, signature_of
from hlosharding.schedule.cutting.layer_loops import LayerLoop

BY_ROWS = ELEMENTWISE | {"broadcast", "concatenate", "copy", "dot", "reduce", "reshape", "transpose"}
"""Ops without sizes among their attributes: a part of the rows is made by the same op on smaller operands."""
_COMBINES = frozenset({"add", "and", "maximum", "minimum", "multiply", "or"})


class StackedValues:
    """Which values are had in parts, along which dim; and the ops that are done part by part."""

    def __init__(self, loops: Mapping[Instruction, LayerLoop]) -> None:
        self.dims: dict[Instruction, int] = {}
        self.factors: dict[Instruction, int] = {}
        """Of ops that are done part by part, the factor of their signature that the rows are."""
        self._changed = deque[Instruction]()
        for loop, found in loops.items():
            for index in found.stacks:
                self._take(loop.operands[0].operands[index], 0)
            for user in loop.users:
                if user.tuple_index in found.stacks:
                    self._take(user, 0)
        while self._changed:
            value = self._changed.popleft()
            for op in (value, *value.users):
                self._look_at(op)

    def _take(self, value: Instruction, dim: int) -> None:
        if value not in self.dims:
            self.dims[value] = dim
            self._changed.append(value)

    def _look_at(self, op: Instruction) -> None:
        if op in self.factors or op.opcode not in BY_ROWS or not op.shape.is_array:
            return
        signature = signature_of(op)
        if not isinstance(signature, Signature):
            return
        for number in range(len(signature.factors)):
            places = _places(op, signature, number)
            known = [self.dims[value] == dim for value, dim in places if value in self.dims]
            if known and all(known) and len(dict(places)) == len(set(places)) and _is_by_parts(op, signature, number):
                self.factors[op] = number
                for value, dim in places:
                    self._take(value, dim)
                return


def _places(op: Instruction, signature: Signature, factor: int) -> list[tuple[Instruction, int]]:
    """Values with the dim that is a factor."""
    operands = [(op.operands[operand], dim) for operand, dim in signature.operand_dims(factor)]
    return [*operands, *((op, dim) for _, dim in signature.result_dims(factor))]


def _is_by_parts(op: Instruction, signature: Signature, factor: int) -> bool:
    """Are the rows a dim of their own, and parts of them independent, or partial results?"""
    size, owes = signature.factors[factor].size, signature.factors[factor].owes
    if any(value.shape.dims[dim] != size for value, dim in _places(op, signature, factor)):
        return False
    if isinstance(owes, Reduce):
        return owes.kind in _COMBINES and all(is_neutral(op.operands[n], owes.kind) for n in owes.once)
    return isinstance(owes, Nothing) and bool(signature.result_dims(factor))
