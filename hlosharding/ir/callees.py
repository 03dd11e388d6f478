"""Copies of called computations in another module.

Floor: ir.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlosharding.ir.builder import Builder, ComputationBuilder
from hlosharding.ir.graph import Computation, Instruction

CopyOp = Callable[[ComputationBuilder, Instruction, Sequence[Instruction], Sequence[Computation]], Instruction]
"""(into, the op, its new operands, what it calls there) to the new op."""


def same_op(
    into: ComputationBuilder, inst: Instruction, operands: Sequence[Instruction], called: Sequence[Computation]
) -> Instruction:
    """The same op on other operands."""
    return into.add_like(inst, inst.opcode, inst.shape, operands, called, inst.name)


class Callees:
    """Each computation is copied once, before the one that calls it.

    >>> import hlosharding as hs
    >>> module = hs.trace(lambda x: x.sum())(__import__("numpy").ones(4, "f"))
    >>> [reduce] = module.of_opcodes("reduce")
    >>> [len(made.instructions) for made in Callees(Builder("other")).of(reduce)]
    [3]
    """

    def __init__(self, builder: Builder, copy: CopyOp = same_op, *, name: str = "") -> None:
        self._builder, self._copy, self._name = builder, copy, name
        self._done: dict[Computation, Computation] = {}

    def of(self, inst: Instruction) -> list[Computation]:
        """What an op calls."""
        return [self.add_copy(computation) for computation in inst.called]

    def add_copy(self, computation: Computation) -> Computation:
        """The copy, under the name that all have, or its own."""
        if computation not in self._done:
            called = {inst: self.of(inst) for inst in computation.instructions}
            into = self._builder.computation(self._name or computation.name)
            new: dict[Instruction, Instruction] = {}
            for inst in computation.instructions:
                new[inst] = self._copy(into, inst, [new[operand] for operand in inst.operands], called[inst])
            into.root(new[computation.root])
            self._done[computation] = into.computation
        return self._done[computation]
