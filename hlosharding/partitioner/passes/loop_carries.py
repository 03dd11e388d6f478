"""The carry of a loop as its elements: where they come from, who reads them, and how it gets more of them or fewer.

Floor: partitioner.  Reads and changes finished per-device programs.

What a loop carries though it is made of constants alone is made in each trip, where it is fused into its reader.  A
mask, a fill value: JAX makes them before a `scan`, and each device would keep and read them as arrays, gigabytes of
them where they have a row for each score of an attention.  As XLA's WhileLoopConstantSinking, which stops at broadcasts
of constants.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.ir import ELEMENTWISE, GENERATORS, Computation, Instruction, Module, rewrite, while_parts
from hlosharding.partitioner.prices import SMALL

Path = tuple[int, ...]
"""Where something stands in a carry: element of element of ..."""


def is_plain(loop: Instruction) -> bool:
    """Is the carry a tuple that is only taken apart and put together?"""
    return while_parts(loop).body.root.opcode == "tuple" and not loop.is_root and all(map(is_element, readers_of(loop)))


def is_handed_on(body: Computation, path: Path) -> bool:
    """Does a trip give back, at its own place, the element of the carry that it was given?"""
    found = body.root
    for index in path:
        element = element_of(found, index)
        if element is None:
            return False
        found = element
    return path_of(found, body.parameters[0]) == path


def path_of(inst: Instruction, parameter: Instruction) -> Path | None:
    """What `inst` takes from a parameter, if it does nothing else."""
    if inst is parameter:
        return ()
    if not is_element(inst):
        return None
    source = element_of(inst.operands[0], inst.tuple_index)
    if source is not None:
        return path_of(source, parameter)
    outer = path_of(inst.operands[0], parameter)
    return None if outer is None else (*outer, inst.tuple_index)


def is_element(inst: Instruction) -> bool:
    """Is it taken out of a tuple?"""
    return inst.opcode == "get-tuple-element"


def element_of(packed: Instruction, index: int) -> Instruction | None:
    """What was put into a tuple, seen through loops that hand it on; None where nobody can tell."""
    if packed.opcode == "while":
        body = while_parts(packed).body
        if body.root.opcode != "tuple" or path_of(body.root.operands[index], body.parameters[0]) != (index,):
            return None
        return element_of(packed.operands[0], index)
    return packed.operands[index] if packed.opcode == "tuple" else None


def readers_of(loop: Instruction) -> list[Instruction]:
    """All that take elements out of the carry: in body and condition, and behind the loop."""
    return [u for part in dict.fromkeys(loop.called) for u in part.parameters[0].users] + loop.users


def at_first(module: Module, loop: Instruction, path: Path) -> Instruction:
    """What an element of the carry is before the first trip."""
    found = loop.operands[0]
    for index in path:
        element = element_of(found, index)
        found = taken(module, found, index, loop.computation, place_of(loop)) if element is None else element
    return found


def place_of(loop: Instruction) -> int:
    """Where a loop stands in its computation."""
    return loop.computation.instructions.index(loop)


def taken(module: Module, packed: Instruction, index: int, where: Computation, place: int) -> Instruction:
    """A new instruction that takes an element out of a tuple, at a text position."""
    name = rewrite.fresh_name(module, f"{packed.name}_{index}")
    return rewrite.insert(where, place, "get-tuple-element", None, (packed,), name=name, like=packed, tuple_index=index)


def set_carry(module: Module, loop: Instruction, firsts: Sequence[Instruction]) -> None:
    """Give a loop the elements that it starts with; the shapes of its parts follow."""
    name = rewrite.fresh_name(module, f"{loop.name}_carry")
    packed = rewrite.insert(loop.computation, place_of(loop), "tuple", None, firsts, name=name, like=loop)
    before = loop.operands[0]
    rewrite.set_operands(loop, (packed,))
    if before.opcode == "tuple" and not before.users:
        rewrite.remove(before)
    for inst in (loop, while_parts(loop).body.root, *(part.parameters[0] for part in loop.called)):
        rewrite.set_shape(inst, packed.shape)


def drop_idle(module: Module, loop: Instruction, indices: set[int]) -> None:
    """Carry no more what no trip reads: afterwards it is what it was before."""
    idle = {k for k in indices if _is_idle(loop, k)}
    if not idle:
        return
    firsts, root = loop.operands[0].operands, while_parts(loop).body.root
    for user in [u for u in loop.users if u.tuple_index in idle]:
        rewrite.replace_uses(user, firsts[user.tuple_index])
        rewrite.remove(user)
    kept = [k for k in range(len(firsts)) if k not in idle]
    rewrite.set_operands(root, [root.operands[k] for k in kept])
    set_carry(module, loop, [firsts[k] for k in kept])
    for reader in readers_of(loop):
        if reader.tuple_index in idle:
            rewrite.remove(reader)
        else:
            rewrite.set_attributes(reader, tuple_index=kept.index(reader.tuple_index))


def _is_idle(loop: Instruction, index: int) -> bool:
    """Is an element only handed on?"""
    readers, root = [u for u in readers_of(loop) if u.tuple_index == index], while_parts(loop).body.root
    if any(u.is_root for u in readers) or [i for i, o in enumerate(root.operands) if o in readers] != [index]:
        return False
    return all(user is root for u in readers if u.computation is not loop.computation for user in u.users)


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
    # Once: a fresh name for each constant would be a walk over all instructions.
    taken = rewrite.names_of(module) if sunk else set[str]()
    for reader in readers_of(loop):
        if reader.computation is not loop.computation and reader.tuple_index in sunk:
            copy = _copied(sunk[reader.tuple_index], reader, taken)
            for user in list(reader.users):
                for place, operand in enumerate(user.operands):
                    # The body hands it on as before: so `drop_idle` sees that no trip reads it.
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
