"""The names that values would like: those of the user's arguments, of instructions, or of what a loop carries.

Floor: executor.  A carry is named after what goes into the loop: an argument's path, or the value's instruction; after
what a trip makes of it where it starts as a constant; and `i` where it counts the trips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlosharding.executor.flow import Var
from hlosharding.executor.text import identifier
from hlosharding.ir import GENERATORS, Computation, ElementReaders, Instruction, loop_counter, while_parts

COUNTER = "i"
_SAME = frozenset({"bitcast", "copy"})
_MADE = GENERATORS | {"broadcast"}


class Wishes:
    """Of the values of one module."""

    def __init__(self, callers: Mapping[Computation, Sequence[Instruction]]) -> None:
        self._callers, self._readers = callers, ElementReaders()
        self._carries: dict[tuple[Instruction, int], str] = {}

    def of(self, var: Var) -> str:
        """The name of a value."""
        inst, path = var.inst, var.path
        if not path and inst.opcode == "parameter" and inst.computation.is_entry and inst.op_name:
            return identifier(inst.op_name)
        if len(path) == 1:
            taker = next(iter(self._readers.of(inst, path[0])), None)
            if taker is not None and not taker.name.startswith("get-tuple-element"):
                return identifier(taker.name)
            loop = self._loop(inst)
            if loop is not None:
                return self._carry(loop, path[0])
        return identifier("_".join([inst.name, *map(str, path)]))

    def _loop(self, inst: Instruction) -> Instruction | None:
        """The loop that makes a tuple, or hands it to its body or condition."""
        if inst.opcode == "while":
            return inst
        callers = self._callers.get(inst.computation, ()) if inst.opcode == "parameter" else ()
        return callers[0] if len(callers) == 1 and callers[0].opcode == "while" else None

    def _carry(self, loop: Instruction, index: int) -> str:
        known = self._carries.get((loop, index))
        if known is None:
            self._carries[loop, index] = f"{loop.name}_{index}"  # of loops in loops that hand each other's carries on
            known = self._carries[loop, index] = identifier(self._named(loop, index))
        return known

    def _named(self, loop: Instruction, index: int) -> str:
        counter = loop_counter(loop)
        if counter is not None and counter.index == index:
            return COUNTER
        given, body = loop.operands[0], while_parts(loop).body.root
        value = _unwrapped(given.operands[index]) if given.opcode == "tuple" else None
        if value is not None and value.opcode == "get-tuple-element":
            return self.of(Var(value.operands[0], (value.tuple_index,)))
        if value is not None and value.opcode not in _MADE:
            return self.of(Var(value))
        made = _unwrapped(body.operands[index]) if body.opcode == "tuple" else None
        if made is not None and made.opcode not in ("get-tuple-element", "parameter"):
            return made.name
        return value.name if value is not None else f"{loop.name}_{index}"


def _unwrapped(value: Instruction) -> Instruction:
    while value.opcode in _SAME and value.shape.is_array:
        value = value.operands[0]
    return value
