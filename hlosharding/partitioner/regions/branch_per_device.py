"""What devices do each in its own way: a conditional on the partition id.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hlosharding.ir import Computation, Instruction
from hlosharding.partitioner.context import Context
from hlosharding.spmd import Emitter

Task = TypeVar("Task")
Write = Callable[[Emitter, Instruction, Task], Instruction]
"""(an emitter of the branch, its parameter, what its devices do) -> its result."""


def branch_per_device(
    context: Context,
    inst: Instruction,
    operand: Instruction,
    tasks: Sequence[Task],
    chosen: Sequence[int],
    write: Write[Task],
) -> Instruction:
    """The result of each device's own task on the local `operand`; `chosen`: the number of the task by device."""
    called = [_branch(context, inst, operand, write, task) for task in tasks]
    operands = (context.emitter.per_device(chosen), *(operand,) * len(called))
    return context.emitter.op("conditional", called[0].root.shape, operands, called=called)


def _branch(context: Context, inst: Instruction, operand: Instruction, write: Write[Task], task: Task) -> Computation:
    builder = context.emitter.program.body(f"{inst.name}_branch")
    emitter = Emitter(context.emitter.program, builder, context.emitter.manual_groups)
    emitter.lowering(inst)
    builder.root(write(emitter, builder.parameter(0, operand.shape, name="operand"), task))
    return builder.computation
