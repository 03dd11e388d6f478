"""Values that one op alone reads, which wants them in another sharding: they are made as it wants them.

Floor: partitioner.  Looks at instructions and shardings alone.  The op then looks for its cheapest split between its
operands and what is wanted in the end; it would have made the value in the propagated sharding first, for nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlosharding.ir import PACKS, Instruction
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.overrides.op_sets import BINDING
from hlosharding.partitioner.overrides.program_shardings import ProgramShardings
from hlosharding.sharding import HloSharding


def wanted_by_only_readers(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, the other shardings that such values take: of results of the program, and of what the user annotated.

    A tuple that is given back holds its values as their readers want them, too: else they would seem to go by another
    sharding on the way.
    """
    shardings, bound = program.shardings, program.annotated
    found: dict[int, HloSharding] = {}
    for user in program.module.of_opcodes("tuple", "copy"):
        asked = list(_asked(user, shardings, bound)) if user.computation.is_entry else []
        if user.opcode == "tuple" and asked and user.name not in bound:
            held = HloSharding.tuple([wanted for _, wanted in asked])
            found |= {user.id: held} if held is not shardings[user.id] else {}
        for operand, wanted in asked:
            given = shardings.get(operand.id)
            if given is None or as_compared(given) is as_compared(wanted) or operand.name in bound:
                continue
            if operand.users == [user] and operand.shape.is_array and operand.opcode not in BINDING | PACKS:
                found[operand.id] = wanted
    return found


def _asked(
    user: Instruction, shardings: Mapping[int, HloSharding], bound: frozenset[str]
) -> Iterator[tuple[Instruction, HloSharding]]:
    """The operands that an op takes as they shall be from here on, each with its sharding."""
    given = shardings.get(user.id)
    if given is None or given.is_unknown():
        return
    if (
        user.opcode == "tuple"
        and user.operands
        and _is_given_back(user)
        and all(o.shape.is_array for o in user.operands)
    ):
        leaves = list(given.normalize_tuple(len(user.operands)).leaves)
        for element in user.users:
            leaves[element.tuple_index] = shardings.get(element.id, leaves[element.tuple_index])
        yield from zip(user.operands, leaves, strict=True)
    elif user.opcode == "copy" and user.name in bound and user.shape.is_array:
        yield user.operands[0], given


def _is_given_back(packed: Instruction) -> bool:
    """Is the tuple what the program gives back, or its only element?"""
    return packed.is_root or all(u.opcode == "get-tuple-element" and u.is_root for u in packed.users)
