"""Parts: every instruction is in one of them, or is computed again; and they can run in their order."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from hlosharding.cost import machines
from hlosharding.schedule.cutting.microbatched import MADE_WHERE_READ, Microbatched
from hlosharding.schedule.cutting.microbatches import cut_microbatches
from hlosharding.schedule.cutting.pieces import Part, cut_parts
from hlosharding.schedule.cutting.pipelining import argument_numbers
from hlosharding.schedule.cutting.saved_values import CHEAP
from hlosharding.schedule.cutting.stages import Placement, place_stages, seconds_of
from tests.support.training_steps import STEPS, traced

NAMES = [*STEPS]


@cache
def cut(name: str) -> tuple[Microbatched, Placement, list[Part]]:
    step, module = traced(name)
    program = cut_microbatches(module, dict.fromkeys(argument_numbers(module, step.batch), 0), 2)
    placement = place_stages(program, 2, seconds_of(program.module, machines.h100(2)))
    return program, placement, cut_parts(program, placement)


@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_is_in_one_part_or_computed_again(name: str) -> None:
    program, placement, made = cut(name)
    counted = Counter(
        inst.name for part in made for inst in part.module.entry.instructions if inst.opcode != "parameter"
    )
    for inst in placement.phase:
        if inst in program.sums or inst.opcode in MADE_WHERE_READ:
            continue
        assert counted[inst.name] >= 1 or not inst.users, inst
        assert counted[inst.name] == 1 or inst.opcode in CHEAP or placement.phase[inst] == "forward", inst
        assert counted[inst.name] <= 2 or inst.opcode in CHEAP, inst


@pytest.mark.parametrize("name", NAMES)
def test_parts_read_what_was_made_before(name: str) -> None:
    program, _, made = cut(name)
    known = set(program.module.entry.parameters)
    for part in made:
        assert known.issuperset(part.reads), part.module.name
        assert len(set(part.makes)) == len(part.makes) > 0
        assert known.isdisjoint(part.makes)
        known.update(part.makes)
    terms = {inst.operands[0] for inst in program.sums}
    wanted = {inst.operands[0] if inst in program.sums else inst for inst in program.module.entry.root.operands}
    assert known >= wanted
    assert terms >= {part.makes[n] for part in made for n in part.sums}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_made_that_nobody_reads(name: str) -> None:
    program, _, made = cut(name)
    read = {inst for part in made for inst in part.reads}
    read |= {inst.operands[0] if inst in program.sums else inst for inst in program.module.entry.root.operands}
    assert not [inst.name for part in made for inst in part.makes if inst not in read]


def test_a_sum_made_ahead_has_parts_of_its_own() -> None:
    _, _, made = cut("weighted")
    assert [(part.phase, part.level) for part in made[:2]] == [("opening", 0), ("opening", 1)]
    assert all(len(part.sums) == len(part.makes) for part in made[:2])


@pytest.mark.parametrize("name", NAMES)
def test_behind_the_last_microbatch_the_largest_sums_come_first(name: str) -> None:
    program, _, made = cut(name)
    terms = {inst.operands[0] for inst in program.sums}
    for part in made:
        sizes = [inst.shape.byte_size for inst in part.reads if part.phase == "after" and inst in terms]
        assert sizes == sorted(sizes, reverse=True)


def test_only_arrays_travel() -> None:
    for name in NAMES:
        _, _, made = cut(name)
        assert not [inst for part in made for inst in (*part.reads, *part.makes) if inst.shape.is_tuple]
