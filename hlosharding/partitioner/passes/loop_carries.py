"""The carry of a loop as its elements: where they come from, who reads them, and how it gets more of them or fewer.

Floor: partitioner.  Reads and changes finished per-device programs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.ir import Computation, Instruction, Module, rewrite, while_parts

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
