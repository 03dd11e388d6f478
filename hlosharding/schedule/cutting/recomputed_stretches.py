"""Layers that are listed, not in a loop: stretches of the forward pass that the backward pass makes again.

Floor: schedule.

    forward    x -> a, b -> y -> c, d -> z            the backward pass reads a, b, c and d, which wait for it
    stretches  [x -> a, b -> y] [y -> c, d -> z]      it makes c and d of y, then a and b of x

What is made again waits for the gradient that comes into its stretch: a barrier takes both, as `jax.checkpoint` has it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from hlosharding.ir import Edit, Instruction, Module, rewrite
from hlosharding.schedule.cutting.microbatched import find_reached
from hlosharding.schedule.cutting.repeated_ops import is_recomputed, may_be_repeated, recomputed_name, repeat_op
from hlosharding.schedule.cutting.stages import crossing_bytes

_FINEST = 16
"""Budgets of a stretch that are tried: each 0.7 of the one before, so the least is a two-hundredth of all."""
_WORTH = 0.8
"""Of what waits for the backward pass: with more than that held, it is not worth the time."""


@dataclass(frozen=True)
class Stretch:
    """Forward ops, some of which are made again."""

    ops: Sequence[Instruction]
    """Those, operands first."""
    saved: Sequence[Instruction]
    """Of these, what backward ops read."""
    given: Sequence[Instruction]
    """What they are made of: arguments, and what is kept."""


def _is_argument(inst: Instruction) -> bool:
    return inst.opcode == "parameter"


def _may_be_repeated(inst: Instruction) -> bool:
    """Not a loop: where layers are in one, its trips decide, and what others carry and stack is little."""
    return inst.opcode != "while" and may_be_repeated(inst)


def find_stretches(module: Module) -> list[Stretch]:
    """Without the last one, from which the backward pass comes at once; none where that saves too little memory, or the
    program makes anything again by itself."""
    forward = _Forward(module)
    if not forward.saved or any(map(is_recomputed, module.instructions)):
        return []
    starts = min(forward.ways_to_cut(), key=forward.held_bytes)
    if forward.held_bytes(starts) > _WORTH * forward.held_bytes([0]):
        return []
    places = forward.stretch_of(starts)
    states = forward.states(places)
    found = [_stretch(number, places, states, forward.saved) for number in range(len(starts) - 1)]
    return [each for each in found if each.saved]


class _Forward:
    """The forward pass of a program, in program order."""

    def __init__(self, module: Module) -> None:
        gradients, ops, begun = set[Instruction](), dict[Instruction, None](), 0
        for inst in module.entry.instructions:
            reads_forward = any(operand in ops for operand in inst.operands)
            # As stages tell passes apart: a backward name counts only for what reads of the forward pass, whatever
            # reads a gradient counts without one.
            if (inst.is_backward and reads_forward) or not gradients.isdisjoint(inst.operands):
                begun = begun if gradients else len(ops)
                gradients.add(inst)
            elif not inst.is_backward and not inst.is_root and (reads_forward or any(map(_is_argument, inst.operands))):
                ops[inst] = None
        self.ops = list(ops)
        self.trunk = self.ops[:begun]
        """Those ahead of the first backward op; most that stand behind it are made for gradients alone."""
        self._crossing = crossing_bytes(self.trunk)
        self.saved = frozenset(inst for inst in ops if any(user.is_backward for user in inst.users))
        """What backward ops read."""

    @cached_property
    def _waiting(self) -> Sequence[int]:
        """Bytes that wait for the backward pass, ahead of each op of the trunk."""
        sizes = (inst.shape.byte_size if inst in self.saved else 0 for inst in self.trunk)
        return list(accumulate(sizes, initial=0))

    def ways_to_cut(self) -> Iterator[list[int]]:
        """Where stretches begin, with about as many bytes waiting in each, for ever smaller ones."""
        for power in range(1, _FINEST + 1):
            yield self._starts_within(self._waiting[-1] * 0.7**power)

    def _starts_within(self, budget: float) -> list[int]:
        """The next stretch begins where least crosses, from a half of the budget on."""
        starts, ahead = [0], self._waiting
        while ahead[-1] - ahead[starts[-1]] > budget:
            begun = ahead[starts[-1]]
            least = bisect_right(ahead, begun + budget / 2)
            most = max(bisect_right(ahead, begun + budget), least + 1)
            if least >= len(self.trunk):
                break
            starts.append(min(range(least, min(most, len(self.trunk))), key=lambda n: (self._crossing[n], -n)))
        return starts

    def stretch_of(self, starts: Sequence[int]) -> dict[Instruction, int]:
        """The number of each op's stretch; what is made for gradients alone stands with the last of what it reads."""
        found = {inst: bisect_right(starts, number) - 1 for number, inst in enumerate(self.trunk)}
        for inst in self.ops:
            if inst not in found:
                found[inst] = max((found[operand] for operand in inst.operands if operand in found), default=0)
        return found

    def states(self, places: Mapping[Instruction, int]) -> frozenset[Instruction]:
        """What is kept, for other stretches or the caller read it, or it may not be made a second time."""
        return frozenset(
            inst
            for inst, place in places.items()
            if not _may_be_repeated(inst)
            or any(user.is_root or places.get(user, place) != place for user in inst.users)
        )

    def held_bytes(self, starts: Sequence[int]) -> int:
        """What waits for the backward pass, and what the largest stretch, or the last, makes again."""
        places = self.stretch_of(starts)
        states = self.states(places)
        inside = [0] * len(starts)
        for inst in self.saved - states:
            inside[places[inst]] += inst.shape.byte_size
        return sum(inst.shape.byte_size for inst in states) + max(inside)


def _stretch(
    number: int, places: Mapping[Instruction, int], states: frozenset[Instruction], saved: frozenset[Instruction]
) -> Stretch:
    read = [inst for inst, place in places.items() if place == number and inst in saved and inst not in states]

    def is_given(op: Instruction) -> bool:
        return _is_argument(op) or op in states or places.get(op, number) != number or not _may_be_repeated(op)

    reached = find_reached(read, lambda op: () if is_given(op) else op.operands)
    in_order = sorted(reached, key=lambda op: op.id)
    # What is made of constants alone is made in each stretch.
    ops = [op for op in in_order if not is_given(op) and op.opcode != "constant"]
    return Stretch(ops, read, list(filter(is_given, in_order)))


def recompute_stretches(edit: Edit) -> None:
    """Let the backward pass make the stretches of a program again."""
    _read_elements(edit)
    for stretch in reversed(find_stretches(edit.module)):
        _write(edit, stretch)


def _read_elements(edit: Edit) -> None:
    """Of tuples inside of the program: what was packed for the backward pass alone is not made for it any more."""
    for inst in edit.module.entry.instructions:
        if inst.opcode == "get-tuple-element" and inst.operands[0].opcode == "tuple" and inst not in edit.shardings:
            edit.replace_uses(inst, inst.operands[0].operands[inst.tuple_index])


def _write(edit: Edit, stretch: Stretch) -> None:
    """Nothing where no gradient comes in that it could wait for."""
    readers = dict.fromkeys(user for inst in stretch.saved for user in inst.users if user.is_backward)
    gradients = _gradients_into(readers)
    if not gradients:
        return
    entry = stretch.ops[0].computation
    name = recomputed_name(stretch.ops[0].op_name, backward=True)
    packed = edit.create(entry, "tuple", (*stretch.given, *gradients), metadata_of=stretch.ops[0])
    held = edit.create(entry, "opt-barrier", (packed,), metadata_of=stretch.ops[0])
    made = dict[Instruction, Instruction]()
    for index, inst in enumerate(stretch.given):
        made[inst] = edit.create(entry, "get-tuple-element", (held,), tuple_index=index, metadata_of=inst)
    # By their names these are backward ops, for whoever tells passes apart by names.
    for inst in (packed, held, *made.values()):
        rewrite.set_metadata(inst, op_name=name)
    for op in stretch.ops:
        made[op] = repeat_op(edit, op, [made.get(o, o) for o in op.operands], entry, backward=True)
    instead = {inst: made[inst] for inst in stretch.saved}
    for reader in readers:
        edit.set_operands(reader, [instead.get(operand, operand) for operand in reader.operands])


def _gradients_into(readers: Iterable[Instruction]) -> list[Instruction]:
    """What backward ops read that none of them makes."""
    behind = find_reached(readers, lambda op: op.users)
    return list(dict.fromkeys(o for op in readers for o in op.operands if o.is_backward and o not in behind))
