"""A transpose in front of a reduce-scatter goes behind it: it moves a part in place of the whole.

Floor: partitioner.  A weight's gradient is a product that is transposed, and its partial results pass through that.
XLA joins a transpose with the product in front of it, and its CPU compiler has no fast kernel for the product that
comes of it.
"""

from __future__ import annotations

from hlosharding.ir import Instruction, Module, rewrite
from hlosharding.spmd import CAUSE_ATTRIBUTE


def transpose_parts(module: Module) -> None:
    """Let our reduce-scatters add up what is not transposed yet.  Ids stay dense."""
    found = [inst for inst in module.of_opcodes("reduce-scatter") if _is_of_transposed(inst)]
    for inst in found:
        _swap(inst)
    if found:
        module.renumber()


def _is_of_transposed(inst: Instruction) -> bool:
    """Is it ours, and the only reader of what is transposed for it?"""
    if CAUSE_ATTRIBUTE not in inst.frontend_attributes or len(inst.operands) != 1 or inst.control_predecessors:
        return False
    before = inst.operands[0]
    return before.opcode == "transpose" and len(before.users) == 1 and not before.control_predecessors


def _swap(inst: Instruction) -> None:
    [before], [scattered], shape, module = inst.operands, inst.dimensions, inst.shape, inst.module
    order, source, at = before.dimensions, before.operands[0], inst.computation.instructions.index(inst) + 1
    rewrite.set_operands(inst, (source,))
    rewrite.set_attributes(inst, dimensions=(order[scattered],))
    rewrite.set_shape(inst, source.shape.with_dims(tuple(shape.dims[order.index(dim)] for dim in range(shape.rank))))
    rewrite.remove(before)
    # Not the old one: that is known as partial sums.
    after = rewrite.insert(
        inst.computation, at - 1, "transpose", shape, (inst,), name=before.name, like=before, dimensions=order
    )
    rewrite.replace_uses(inst, after)
    if inst.id in module.shardings:  # it is a result of the program
        rewrite.number(module, after)
        module.shardings[after.id] = module.shardings.pop(inst.id)
