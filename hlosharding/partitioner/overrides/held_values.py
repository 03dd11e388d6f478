"""Values that a tuple holds on their way: who reads them behind it, and what its elements are.

Floor: partitioner.  Looks at instructions alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlosharding.ir import Instruction


def only_holds(inst: Instruction) -> bool:
    """Is it a tuple of arrays, of which single ones are read again?"""
    if inst.opcode != "tuple" or inst.is_root or not all(o.shape.is_array for o in inst.operands):
        return False
    return all(user.opcode == "get-tuple-element" for user in inst.users)


def sources_of(inst: Instruction) -> list[Instruction]:
    """What a value is made of; of an element of a tuple what was put there."""
    if inst.opcode == "get-tuple-element" and only_holds(inst.operands[0]):
        return [inst.operands[0].operands[inst.tuple_index]]
    return list(inst.operands)


def readers_of(inst: Instruction) -> Iterator[Instruction]:
    """Who uses a value, also out of a tuple."""
    for user in inst.users:
        if only_holds(user):
            yield from (element for element in user.users if sources_of(element)[0] is inst)
        else:
            yield user
