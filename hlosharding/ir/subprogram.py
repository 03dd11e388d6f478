"""Some instructions of a module's entry as a module of their own.

Floor: ir.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hlosharding.ir.builder import Builder
from hlosharding.ir.callees import Callees, same_op
from hlosharding.ir.graph import Instruction
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
