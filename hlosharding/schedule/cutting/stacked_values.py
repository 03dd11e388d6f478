"""Values of all layers in one array: those that are had in parts, and the ops that are done part by part.

Floor: schedule.  From the stacks of loops over layers on: an op whose rules say that rows are independent has its
result in parts where an operand is, and needs its operands so where its result is.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hlosharding.ir import ELEMENTWISE, Instruction, is_neutral
from hlosharding.rules import Nothing, Reduce, Signature, signature_of
from hlosharding.schedule.cutting.layer_loops import LayerLoop

BY_ROWS = ELEMENTWISE | {"broadcast", "concatenate", "copy", "dot", "reduce", "reshape", "transpose"}
"""Ops without sizes among their attributes: a part of the rows is made by the same op on smaller operands."""
_COMBINES = frozenset({"add", "and", "maximum", "minimum", "multiply", "or"})


class RowParts(NamedTuple):
    """How a value is had in parts."""

    dim: int
    lengths: tuple[int, ...]


class StackedValues:
    """Which values are had in parts; the loops that are cut, and the ops that are done part by part.

    `trips`: of loops how many trips each part of it takes.  Loops that share a stack are cut alike, as the first one.
    """

    def __init__(self, loops: Mapping[Instruction, LayerLoop], trips: Mapping[Instruction, tuple[int, ...]]) -> None:
        self.rows: dict[Instruction, RowParts] = {}
        self.factors: dict[Instruction, tuple[int, tuple[int, ...]]] = {}
        """Of ops that are done part by part, the factor of their signature that the rows are, and its parts."""
        self.trips: dict[Instruction, tuple[int, ...]] = {}
        self._loops = loops
        self._stacks: defaultdict[Instruction, list[tuple[Instruction, bool]]] = defaultdict(list)
        for loop, found in loops.items():
            for value, is_from_last in _stacks_of(found):
                self._stacks[value].append((loop, is_from_last))
        self._changed = deque[Instruction]()
        for loop, lengths in trips.items():
            self._cut(loop, lengths)
            self._spread()

    def _cut(self, loop: Instruction, lengths: tuple[int, ...]) -> None:
        stacks = list(_stacks_of(self._loops[loop]))
        # A transposed stack may be cut along its columns already, where there are as many as layers.
        if loop not in self.trips and not any(value in self.rows and self.rows[value].dim for value, _ in stacks):
            self.trips[loop] = lengths
            for value, is_from_last in stacks:
                self._take(value, RowParts(0, _reverse_if(lengths, is_from_last)))

    def _spread(self) -> None:
        while self._changed:
            value = self._changed.popleft()
            for loop, is_from_last in self._stacks[value]:
                self._cut(loop, _reverse_if(self.rows[value].lengths, is_from_last))
            for op in (value, *value.users):
                self._look_at(op)

    def _take(self, value: Instruction, rows: RowParts) -> None:
        # The first way to cut a value counts: each is changed once at most, so the spread ends.
        if value not in self.rows:
            self.rows[value] = rows
            self._changed.append(value)

    def _look_at(self, op: Instruction) -> None:
        if op in self.factors or op.opcode not in BY_ROWS or not op.shape.is_array:
            return
        signature = signature_of(op)
        if not isinstance(signature, Signature):
            return
        for number in range(len(signature.factors)):
            places = _places(op, signature, number)
            known = {self.rows[value].lengths for value, _ in places if value in self.rows}
            is_along = all(self.rows[value].dim == dim for value, dim in places if value in self.rows)
            # What two loops cut in two ways is joined before the op.
            if len(known) == 1 and is_along and _is_by_parts(op, signature, number):
                [lengths] = known
                self.factors[op] = number, lengths
                for value, dim in places:
                    self._take(value, RowParts(dim, lengths))
                return


def _stacks_of(found: LayerLoop) -> Iterator[tuple[Instruction, bool]]:
    """What a loop is given as stacks, and makes of them; are these taken from the last row on?"""
    given = found.loop.operands[0].operands
    yield from ((given[index], is_from_last) for index, is_from_last in found.stacks.items())
    yield from ((user, found.stacks[n]) for user in found.loop.users if (n := user.tuple_index) in found.stacks)


def _reverse_if(lengths: tuple[int, ...], is_from_last: bool) -> tuple[int, ...]:
    """Trips for rows, or rows for trips."""
    return lengths[::-1] if is_from_last else lengths


def _places(op: Instruction, signature: Signature, factor: int) -> list[tuple[Instruction, int]]:
    """Values with the dim that is a factor."""
    operands = [(op.operands[operand], dim) for operand, dim in signature.operand_dims(factor)]
    return [*operands, *((op, dim) for _, dim in signature.result_dims(factor))]


def _is_by_parts(op: Instruction, signature: Signature, factor: int) -> bool:
    """Are the rows a dim of their own, and parts of them independent, or partial results?"""
    size, owes, places = signature.factors[factor].size, signature.factors[factor].owes, _places(op, signature, factor)
    # No parts: a value with the factor in two of its dims (a matrix times its transpose), and a dim that holds other
    # factors beside this one (of a reshape).
    if len(dict(places)) < len(set(places)) or any(value.shape.dims[dim] != size for value, dim in places):
        return False
    if isinstance(owes, Reduce):
        # An initial value that is not neutral would count once in each part.
        return owes.kind in _COMBINES and all(is_neutral(op.operands[n], owes.kind) for n in owes.once)
    return isinstance(owes, Nothing) and bool(signature.result_dims(factor))
