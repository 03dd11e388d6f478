"""Sums over all microbatches that each of them needs, and that cost little: made ahead of all passes.

Floor: schedule.  A loss is divided by the number of tokens that count in the whole batch; a batch is centered.  What is
made of batch inputs by cheap ops alone is made twice: once ahead for the sum, once where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hlosharding.ir import Instruction
from hlosharding.schedule.cutting.microbatched import (
    Microbatched,
    error_at,
    find_reached,
    place_in_source,
    reads_of,
)
from hlosharding.schedule.cutting.saved_values import LIGHT


def name_openings(program: Microbatched) -> Microbatched:
    """The program with its early sums named.

    Raises ScheduleError for an op of a microbatch that needs a sum which is not cheap.
    """
    while (late := _first_needing_sum(program)) is not None:
        early = program.sums & _find_ancestors([late])
        # With nothing new to make ahead the same op would be found for ever.
        if early <= program.opening or not all(
            inst.opcode in LIGHT or inst in early for inst in _find_ancestors(early)
        ):
            [first, *_] = (inst.operands[0] for inst in program.module.entry.instructions if inst in early)
            raise error_at(
                late,
                f"%{late.name} ({late.opcode}) needs a sum over all microbatches to work on one of them: that of"
                f" %{first.name} at {place_in_source(first)}",
                "let a microbatch need no other (no statistics over the batch but of its inputs; of groups of rows they"
                " may be), or take one microbatch",
            )
        program = replace(program, opening=program.opening | early)
    return program


def _first_needing_sum(program: Microbatched) -> Instruction | None:
    """The first op that reads a sum, or what is made of one, together with a microbatch's own value."""
    late = (inst for inst in program.module.entry.instructions if inst in program.after and inst not in program.sums)
    return next((inst for inst in late if any(operand in program.varying for operand in reads_of(inst))), None)


def _find_ancestors(instructions: Iterable[Instruction]) -> set[Instruction]:
    """All that these are made of, themselves included."""
    return find_reached(instructions, lambda inst: inst.operands)


def opening_levels(program: Microbatched) -> Mapping[Instruction, int]:
    """Of each early sum how many of them, one made of the other, come before it."""
    found: dict[Instruction, int] = {}
    for inst in program.module.entry.instructions:
        if inst in program.opening:
            before = _find_ancestors(inst.operands) & program.opening
            found[inst] = max((found[each] + 1 for each in before), default=0)
    return found
