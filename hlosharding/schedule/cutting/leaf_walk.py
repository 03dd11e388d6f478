"""What holds for each leaf of each value of a program: one walk through ops, tuples, calls and branches, around loops.

Floor: schedule.  Knows what ops with computations do with leaves, and nothing of what is told of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import Generic, TypeVar

from hlosharding.ir import Computation, Instruction, branches, while_parts
from hlosharding.once import remembered

L = TypeVar("L")


class LeafWalk(ABC, Generic[L]):
    """One walk; loops are walked through until what they carry no longer changes."""

    def __init__(self) -> None:
        self.found: dict[Instruction, tuple[L, ...]] = {}
        """Of each value that was come across, its leaves, in their order."""

    @abstractmethod
    def of_op(self, inst: Instruction, operands: Sequence[tuple[L, ...]]) -> tuple[L, ...]:
        """Behind an op that does something to elements."""

    @abstractmethod
    def merge(self, inst: Instruction, left: L, right: L) -> L:
        """What is one or the other behind a loop, or branches."""

    # Of functions that call another one twice, level below level, there would be twice as many calls at each.
    @remembered
    def walk(self, computation: Computation, arguments: tuple[tuple[L, ...], ...]) -> tuple[L, ...]:
        """What a computation gives for such arguments."""
        for parameter, leaves in zip(computation.parameters, arguments, strict=True):
            self.found[parameter] = leaves
        for inst in computation.instructions:
            if inst.opcode != "parameter":
                self.found[inst] = self.behind(inst, [self.found[operand] for operand in inst.operands])
        return self.found[computation.root]

    def behind(self, inst: Instruction, operands: Sequence[tuple[L, ...]]) -> tuple[L, ...]:
        """What an op gives for such operands."""
        match inst.opcode:
            case "tuple":
                return tuple(leaf for leaves in operands for leaf in leaves)
            case "get-tuple-element":
                first = inst.operands[0].shape.first_leaves
                return operands[0][first[inst.tuple_index] : first[inst.tuple_index + 1]]
            case "opt-barrier" | "copy":
                return operands[0]
            case "call":
                return self.walk(inst.called[0], tuple(operands))
            case "while":
                return self.behind_loop(inst, operands[0])
            case "conditional":
                return self.behind_branches(inst, operands)
            case _:
                return self.of_op(inst, operands)

    def behind_loop(self, loop: Instruction, carry: tuple[L, ...]) -> tuple[L, ...]:
        """What a loop carries in the end."""
        body, before = while_parts(loop).body, None
        # This ends, for `merge` only goes on from what was there (zeros to terms, no dim to a dim), and never back.
        while carry != before:
            before, carry = carry, self._merge_all(loop, carry, self.walk(body, (carry,)))
        return carry

    def behind_branches(self, inst: Instruction, operands: Sequence[tuple[L, ...]]) -> tuple[L, ...]:
        """What all branches give."""
        ways = [self.walk(way.computation, (given,)) for way, given in zip(branches(inst), operands[1:], strict=True)]
        return reduce(lambda left, right: self._merge_all(inst, left, right), ways)

    def _merge_all(self, inst: Instruction, left: tuple[L, ...], right: tuple[L, ...]) -> tuple[L, ...]:
        return tuple(self.merge(inst, a, b) for a, b in zip(left, right, strict=True))
