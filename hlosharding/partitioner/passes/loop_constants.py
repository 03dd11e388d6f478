"""What a loop carries though it is made of constants alone is made in each trip, where it is fused into its reader.

Floor: partitioner.  A mask, a fill value: JAX makes them before a `scan`, and each device would keep and read them as
arrays, gigabytes of them where they have a row for each score of an attention.  As XLA's WhileLoopConstantSinking,
which stops at broadcasts of constants.
"""

from __future__ import annotations

from hlosharding.ir import ELEMENTWISE, GENERATORS, Computation, Instruction, Module, rewrite, while_parts
from hlosharding.partitioner.passes.loop_carries import drop_idle, is_handed_on, is_plain, readers_of
from hlosharding.partitioner.prices import SMALL

_MADE_OF_NOTHING = ELEMENTWISE | GENERATORS | {"broadcast", "reshape"}
_MOST_OPS = 16
"""More are no mask, and would rather be computed once."""


def sink_constants(module: Module) -> None:
    """Outer loops first: what gets into their bodies may go on into the loops there.  Ids are dense afterwards."""
    for loop in list(module.of_opcodes("while"))[::-1]:
        if is_plain(loop) and loop.operands[0].opcode == "tuple":
            _sink(module, loop)
    rewrite.dead_code(module)  # what is in no loop any more
    module.renumber()


def _sink(module: Module, loop: Instruction) -> None:
    body = while_parts(loop).body
    made = {k: ops for k, first in enumerate(loop.operands[0].operands) if (ops := _ops_of(first)) is not None}
    sunk = {k: ops for k, ops in made.items() if is_handed_on(body, (k,))}
    taken = rewrite.names_of(module) if sunk else set[str]()
    for reader in readers_of(loop):
        if reader.computation is not loop.computation and reader.tuple_index in sunk:
            copy = _copied(sunk[reader.tuple_index], reader, taken)
            for user in list(reader.users):
                for place, operand in enumerate(user.operands):
                    if operand is reader and not (user is body.root and place == reader.tuple_index):
                        rewrite.replace_operand(user, place, copy)
    drop_idle(module, loop, set(sunk))


def _ops_of(made: Instruction) -> list[Instruction] | None:
    """All that a large array is computed by, itself last, where nothing of it is read from memory."""
    if not made.shape.is_array or made.shape.byte_size <= SMALL:
        return None
    order: dict[Instruction, None] = {}
    stack = [made]
    while stack:
        inst = stack[-1]
        if inst.opcode not in _MADE_OF_NOTHING or len(order) + len(stack) > _MOST_OPS or _is_read(inst):
            return None
        waiting = [o for o in inst.operands if o not in order]
        stack.extend(waiting)
        if not waiting:
            order[stack.pop()] = None
    return list(order)


def _is_read(inst: Instruction) -> bool:
    return inst.opcode == "constant" and inst.shape.byte_size > SMALL


def _copied(ops: list[Instruction], reader: Instruction, taken: set[str]) -> Instruction:
    """In the place of an element that is read: what it is made by."""
    where: Computation = reader.computation
    place = where.instructions.index(reader)
    copies: dict[Instruction, Instruction] = {}
    for number, inst in enumerate(ops):
        made = rewrite.copy(inst, place + number, [copies[o] for o in inst.operands], to=where)
        rewrite.rename(made, rewrite.free_name(taken, inst.name))
        copies[inst] = made
    return copies[ops[-1]]
