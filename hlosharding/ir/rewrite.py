"""Changes to a graph that is ours to change (a clone): replace, remove, insert, inline, drop what is dead.

Floor: ir.  Every function keeps operands and users consistent; call `module.renumber()` when done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hlosharding import wire
from hlosharding.errors import ModuleError
from hlosharding.ir.builder import write_attributes
from hlosharding.ir.graph import MAY_ACT, Computation, Instruction, ModuleGraph
from hlosharding.ir.shape import Shape


def set_operands(instruction: Instruction, operands: Iterable[Instruction]) -> None:
    """Give an instruction other operands."""
    old, new = instruction.operands, tuple(operands)
    instruction.operands = new
    for operand in dict.fromkeys(old):
        if operand not in new:
            operand.users.remove(instruction)
    for operand in dict.fromkeys(new):
        if operand not in old:
            operand.users.append(instruction)


def replace_operand(instruction: Instruction, index: int, by: Instruction) -> None:
    """Replace one operand."""
    set_operands(instruction, (*instruction.operands[:index], by, *instruction.operands[index + 1 :]))


def replace_uses(
    instruction: Instruction, by: Instruction, *, where: Callable[[Instruction], bool] = lambda user: True
) -> None:
    """Let the users of `instruction` (those that `where` accepts) use `by`; a root becomes `by` too."""
    for user in list(instruction.users):
        if user is not by and where(user):
            set_operands(user, (by if o is instruction else o for o in user.operands))
    computation = instruction.computation
    if computation.root is instruction and by.computation is computation:
        computation.set_root(by)


def remove(instruction: Instruction) -> None:
    """Take an unused instruction out of its computation."""
    if instruction.users or instruction.is_root:
        raise ModuleError(f"%{instruction.name} is still used", where=f"computation %{instruction.computation.name}")
    set_operands(instruction, ())
    for other in instruction.computation.instructions:
        if instruction in other.control_predecessors:
            other.control_predecessors = tuple(p for p in other.control_predecessors if p is not instruction)
    instruction.computation.instructions.remove(instruction)


def insert(
    computation: Computation,
    position: int,
    opcode: str,
    shape: Shape,
    operands: Iterable[Instruction],
    *,
    name: str,
    like: Instruction | None = None,
    called: Iterable[Computation] = (),
    **attributes: Any,
) -> Instruction:
    """Insert a new instruction at a text position; its name must be free.  Its id is -1 until `renumber`."""
    proto = wire.HloInstructionProto()
    if like is not None:
        proto.metadata.CopyFrom(like.proto.metadata)
    proto.shape.CopyFrom(shape.proto)
    write_attributes(proto, attributes)
    instruction = Instruction(name, opcode, shape, tuple(operands), proto, computation)
    instruction.called = tuple(called)
    computation.instructions.insert(position, instruction)
    return instruction


def copy(instruction: Instruction, position: int, operands: Iterable[Instruction], *, to: Computation) -> Instruction:
    """Insert the same op on other operands at a text position of `to`, attributes and callees shared.

    It has the old one's name: remove that, or rename one of the two.  Its id is -1 until `renumber`.
    """
    made = Instruction(instruction.name, instruction.opcode, instruction.shape, tuple(operands), instruction.proto, to)
    made.called = instruction.called
    to.instructions.insert(position, made)
    return made


def change_opcode(instruction: Instruction, opcode: str, operands: Iterable[Instruction] | None = None) -> None:
    """Turn an instruction into another op of the same name, shape and metadata; its attributes go."""
    old = instruction.own_proto()
    proto = wire.HloInstructionProto(opcode=opcode)
    proto.shape.CopyFrom(old.shape)
    proto.metadata.CopyFrom(old.metadata)
    instruction.proto, instruction.opcode, instruction.called = proto, opcode, ()
    if operands is not None:
        set_operands(instruction, operands)


def fresh_name(module: ModuleGraph, name: str) -> str:
    """`name`, or `name.N` with the smallest free N."""
    taken = {i.name for c in module.computations for i in c.instructions}
    if name not in taken:
        return name
    number = 1
    while f"{name}.{number}" in taken:
        number += 1
    return f"{name}.{number}"


def dead_code(module: ModuleGraph) -> bool:
    """Remove unused instructions without side effect (parameters stay) and computations nobody calls."""
    changed = False
    for computation in module.computations:
        changed |= _dead_instructions(computation)
    reachable: set[Computation] = set()
    stack = [module.entry]
    while stack:
        computation = stack.pop()
        if computation not in reachable:
            reachable.add(computation)
            stack.extend(c for i in computation.instructions for c in i.called)
    kept = [c for c in module.computations if c in reachable]
    changed |= len(kept) != len(module.computations)
    module.computations[:] = kept
    return changed


_MAY_STAY = MAY_ACT | {"parameter"}


def _stays(instruction: Instruction) -> bool:
    return instruction.opcode == "parameter" or instruction.has_side_effect


def _dead_instructions(computation: Computation) -> bool:
    root = computation.root
    stack = [i for i in computation.instructions if (i.called or i.opcode in _MAY_STAY) and _stays(i)]
    stack.append(root)
    live = set(stack)
    while stack:
        instruction = stack.pop()
        for needed in instruction.operands:
            if needed not in live:
                live.add(needed)
                stack.append(needed)
        for needed in instruction.control_predecessors:
            if needed not in live:
                live.add(needed)
                stack.append(needed)
    if len(live) == len(computation.instructions):
        return False
    dead = [i for i in computation.instructions if i not in live]
    computation.instructions[:] = [i for i in computation.instructions if i in live]
    for operand in {o for i in dead for o in i.operands if o in live}:
        operand.users = [u for u in operand.users if u in live]
    return True
