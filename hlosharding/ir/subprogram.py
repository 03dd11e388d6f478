"""Some instructions of a module's entry as a module of their own, with copies of what they call.

Floor: ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hlosharding.ir.builder import Builder, ComputationBuilder
from hlosharding.ir.graph import Computation, Instruction
from hlosharding.ir.module import Module


def subprogram(
    module: Module,
    name: str,
    instructions: Iterable[Instruction],
    reads: Sequence[Instruction],
    makes: Sequence[Instruction],
) -> Module:
    """A module with a parameter for each of `reads` whose root is the tuple of `makes`.

    `instructions`: in program order, reading nothing but each other and `reads`.  Names, attributes and source lines
    stay; computations that they call come along.

    >>> from hlosharding.ir import Shape
    >>> main = (builder := Builder("m")).computation("main")
    >>> x = main.parameter(0, Shape.array("f32", (4,)))
    >>> y = main.op("negate", (x,))
    >>> _ = main.op("exponential", (y,))
    >>> part = subprogram(builder.finish(main), "part", [y], [x], [y])
    >>> [inst.opcode for inst in part.entry.instructions]
    ['parameter', 'negate', 'tuple']
    """
    builder = Builder(name, like=module)
    builder.module.signature = None
    callees = Callees(builder)
    chosen = list(instructions)
    called = {inst: callees.of(inst) for inst in chosen}
    main = builder.computation(module.entry.name)
    made = {inst: main.parameter(number, inst.shape, name=inst.name) for number, inst in enumerate(reads)}
    for inst in chosen:
        made[inst] = same_op(main, inst, [made[operand] for operand in inst.operands], called[inst])
    main.root(main.op("tuple", [made[inst] for inst in makes]))
    return builder.finish(main)


# ---- copies of what is called

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
