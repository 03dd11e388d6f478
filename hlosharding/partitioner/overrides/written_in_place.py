"""Buffers that a loop writes into row by row stay as the loop carries them.

Floor: partitioner.  Looks at instructions and shardings alone.  XLA gives what is written the sharding of the row, and
moves all of the buffer there and back in every trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hlosharding.ir import Instruction
from hlosharding.partitioner.overrides.held_values import held_as, is_packed, only_holds, readers_of
from hlosharding.partitioner.overrides.op_sets import ProgramShardings
from hlosharding.sharding import HloSharding

Lies = Callable[[Instruction], HloSharding | None]
"""The sharding of a value so far."""


def written_in_place(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, buffers as they lie before something is written into them, where they are handed on so, too."""
    found = dict[int, HloSharding]()

    def lies(inst: Instruction) -> HloSharding | None:
        return found.get(inst.id, program.shardings.get(inst.id))

    # Last first: what another update writes on is handed on as that one was found to lie.
    for update in reversed(list(program.module.of_opcodes("dynamic-update-slice"))):
        way, given, before = list(_way_on(update)), lies(update), lies(_buffer_of(update))
        if given is None or before is None or given is before or any(one.name in program.annotated for one in way):
            continue
        # Otherwise all of it moves in every trip, as XLA has it: of a scan's stack that was 74 times the bytes.
        if _handed_on(way[-1], lies) is before:
            found.update({one.id: before for one in way})
            for one in way[:-1]:
                packed, number = one.users[0], one.users[0].operands.index(one)
                if (held := lies(packed)) is not None:
                    found[packed.id] = held_as(packed, held, {number: before})
    return found


def _buffer_of(update: Instruction) -> Instruction:
    """What is written into, perhaps several times."""
    buffer = update.operands[0]
    while buffer.opcode == "dynamic-update-slice" and len(buffer.users) == 1:
        buffer = buffer.operands[0]
    return buffer


def _way_on(inst: Instruction) -> Iterator[Instruction]:
    """The value, and the elements of tuples as which alone it is read again."""
    yield inst
    while len(inst.users) == 1 and only_holds(inst.users[0]) and len(elements := list(readers_of(inst))) == 1:
        [inst] = elements
        yield inst


def _handed_on(inst: Instruction, lies: Lies) -> HloSharding | None:
    """The sharding in which the only reader has a value: what writes into it on, or the tuple that holds it."""
    [user, *others] = inst.users or [None]
    given = None if user is None or others else lies(user)
    if user is None or given is None:
        return None
    if is_packed(user):
        return given.normalize_tuple(len(user.operands)).leaves[user.operands.index(inst)]
    return given if user.opcode == "dynamic-update-slice" and user.operands[0] is inst else None
