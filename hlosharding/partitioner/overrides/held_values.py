"""Values that a tuple holds on their way: who reads them behind it, what its elements are, and how it holds them.

Floor: partitioner.  Looks at instructions and shardings alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlosharding.ir import Instruction
from hlosharding.sharding import HloSharding


def is_packed(inst: Instruction) -> bool:
    """Is it a tuple of arrays?"""
    return inst.opcode == "tuple" and all(o.shape.is_array for o in inst.operands)


def only_holds(inst: Instruction) -> bool:
    """Is it one of which single arrays are read again?"""
    return is_packed(inst) and not inst.is_root and all(user.opcode == "get-tuple-element" for user in inst.users)


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


def held_as(packed: Instruction, given: HloSharding, found: Mapping[int, HloSharding]) -> HloSharding:
    """The sharding of a tuple of arrays that has `given`, with those elements otherwise whose number is in `found`."""
    leaves = given.normalize_tuple(len(packed.shape.tuple_shapes)).leaves
    return HloSharding.tuple([found.get(number, leaf) for number, leaf in enumerate(leaves)])
