"""Sums over microbatches that loops make in their bodies, made behind the loops instead.

Floor: schedule.  A scan over layers puts the gradient of each layer's weights, summed over the microbatches, into one
stacked array.  If all that happens to the sum in there is linear, the loop may do it to its own microbatch's term: what
it gives back is then a term of the stacked sum.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto
from functools import reduce
from typing import TypeAlias

from hlosharding.errors import ScheduleError
from hlosharding.ir import (
    Computation,
    Instruction,
    Module,
    NameUniquer,
    Shape,
    branches,
    is_neutral,
    rewrite,
    while_parts,
)
from hlosharding.partitioner import linear_operands
from hlosharding.schedule.cutting.microbatched import place_in_source


class Leaf(Enum):
    """An array in all microbatches: the same in each, zeros, its own in each, or a term of a sum over them."""

    SAME = auto()
    ZERO = auto()
    VARYING = auto()
    TERM = auto()


SumKind: TypeAlias = "Leaf | tuple[SumKind, ...]"


def move_sums_behind_loops(module: Module, varying: Collection[int], names: NameUniquer) -> list[Instruction]:
    """Copies, in the entry, of terms that ops with computations give back: the terms' sums are what is to be read.

    `varying`: numbers of the parameters that differ from microbatch to microbatch; `names`: of all instructions.  The
    sums in computations become terms; those of the entry stay.  Raises ScheduleError where a sum is needed before the
    loop ends.
    """
    walk, kinds, found = _TermWalk(), dict[Instruction, SumKind](), list[Instruction]()
    for inst in list(module.entry.instructions):
        operands = [kinds[operand] for operand in inst.operands]
        if inst.opcode == "parameter":
            kinds[inst] = _fill_kind(inst.shape, Leaf.VARYING if inst.parameter_number in varying else Leaf.SAME)
        elif inst.opcode == "all-reduce":
            kinds[inst] = Leaf.SAME
        else:
            if inst.opcode == "while":
                operands = [_hand_terms_on(inst, operands[0], found, walk)]
            kinds[inst] = walk.kind_of(inst, operands)
        if kinds[inst] == Leaf.TERM:
            found.append(insert_sum_behind(inst, names, like=inst))
            kinds[found[-1]] = Leaf.SAME
    return found


def _hand_terms_on(loop: Instruction, given: SumKind, sums: list[Instruction], walk: _TermWalk) -> SumKind:
    """What a loop is given, terms in place of their sums where it may go on with them, as the next part of a loop over
    layers does with the gradient of what all layers share."""
    carry = loop.operands[0]
    for place, operand in enumerate(carry.operands if isinstance(given, tuple) and len(carry.users) == 1 else ()):
        assert isinstance(given, tuple)
        if operand in sums:
            handed_on = (*given[:place], Leaf.TERM, *given[place + 1 :])
            try:
                walk.kind_of(loop, [handed_on])
            except ScheduleError:
                continue
            given = handed_on
            rewrite.replace_operand(carry, place, operand.operands[0])
            if not operand.users:
                sums.remove(operand)
                rewrite.remove(operand)
    return given


def insert_sum_behind(term: Instruction, names: NameUniquer, *, like: Instruction) -> Instruction:
    """The copy that stands for the sum of a term, which is read in its place.  `like` gives its metadata."""
    place = term.computation.instructions.index(term) + 1
    name = names.fresh(f"{term.name}_sum")
    made = rewrite.insert(term.computation, place, "copy", term.shape, (), name=name, like=like)
    rewrite.replace_uses(term, made)
    rewrite.set_operands(made, (term,))
    return made


class _TermWalk:
    """What becomes of terms: from ops to the ops that read them, through computations, around loops."""

    def __init__(self) -> None:
        self._known: dict[tuple[Computation, tuple[SumKind, ...]], SumKind] = {}

    def kind_of(self, inst: Instruction, operands: Sequence[SumKind]) -> SumKind:
        """Of an op's result."""
        match inst.opcode:
            case "all-reduce":
                return Leaf.TERM if not _has_term(operands[0]) else _refuse(inst)
            case "partition-id":
                return Leaf.VARYING
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                [packed] = operands
                return packed[inst.tuple_index] if isinstance(packed, tuple) else packed
            case "opt-barrier" | "copy":
                return operands[0]
            case "call":
                return self._result(inst.called[0], operands)
            case "while":
                return self._behind_loop(inst, operands[0])
            case "conditional":
                return self._behind_branches(inst, operands)
            case _:
                return _kind_of_plain_op(inst, operands)

    def _result(self, computation: Computation, arguments: Sequence[SumKind]) -> SumKind:
        key = computation, tuple(arguments)
        if key not in self._known:
            kinds: dict[Instruction, SumKind] = {}
            for inst in computation.instructions:
                operands = [kinds[operand] for operand in inst.operands]
                is_argument = inst.opcode == "parameter"
                kinds[inst] = arguments[inst.parameter_number] if is_argument else self.kind_of(inst, operands)
            self._known[key] = kinds[computation.root]
        return self._known[key]

    def _behind_loop(self, loop: Instruction, first: SumKind) -> SumKind:
        body, condition = while_parts(loop)
        carry, before = first, None
        while carry != before:
            before, carry = carry, _merge_kinds(loop, carry, self._result(body, [carry]))
        return carry if self._result(condition, [carry]) != Leaf.VARYING else _make_varying(loop, carry)

    def _behind_branches(self, inst: Instruction, operands: Sequence[SumKind]) -> SumKind:
        ways = [self._result(way.computation, [given]) for way, given in zip(branches(inst), operands[1:], strict=True)]
        found = reduce(lambda left, right: _merge_kinds(inst, left, right), ways)
        return found if operands[0] != Leaf.VARYING else _make_varying(inst, found)


def _kind_of_plain_op(inst: Instruction, operands: Sequence[SumKind]) -> SumKind:
    if any(map(_has_term, operands)):
        return Leaf.TERM if _is_linear(inst, operands) else _refuse(inst)
    if inst.shape.is_array and is_neutral(inst, "add"):
        return Leaf.ZERO
    return _fill_kind(inst.shape, Leaf.VARYING if any(map(_varies, operands)) else Leaf.SAME)


def _is_linear(inst: Instruction, operands: Sequence[SumKind]) -> bool:
    """In the terms among its operands together, all else being the same for each microbatch."""
    for together in linear_operands(inst):
        wanted = [
            (Leaf.TERM, Leaf.ZERO) if number in together else (Leaf.SAME, Leaf.ZERO) for number in range(len(operands))
        ]
        if all(kind in allowed for kind, allowed in zip(operands, wanted, strict=True)):
            return True
    return False


def _merge_kinds(inst: Instruction, left: SumKind, right: SumKind) -> SumKind:
    """What is one or the other."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return tuple(_merge_kinds(inst, a, b) for a, b in zip(left, right, strict=True))
    if left == right or right == Leaf.ZERO:
        return left
    if left == Leaf.ZERO:
        return right
    return Leaf.VARYING if {left, right} == {Leaf.SAME, Leaf.VARYING} else _refuse(inst)


def _make_varying(inst: Instruction, kind: SumKind) -> SumKind:
    """Of what each microbatch does another number of times, or in another way."""
    if isinstance(kind, tuple):
        return tuple(_make_varying(inst, element) for element in kind)
    return Leaf.VARYING if kind != Leaf.TERM else _refuse(inst)


def _fill_kind(shape: Shape, leaf: Leaf) -> SumKind:
    return tuple(_fill_kind(element, leaf) for element in shape.tuple_shapes) if shape.is_tuple else leaf


def _has_term(kind: SumKind) -> bool:
    return any(map(_has_term, kind)) if isinstance(kind, tuple) else kind == Leaf.TERM


def _varies(kind: SumKind) -> bool:
    return any(map(_varies, kind)) if isinstance(kind, tuple) else kind == Leaf.VARYING


def _refuse(inst: Instruction) -> Leaf:
    raise ScheduleError(
        f"%{inst.name} ({inst.opcode}) needs a sum over all microbatches before its loop, or branch, has ended",
        where=place_in_source(inst),
        remedy="in there, do nothing with the sum that is not linear in it, or take one microbatch",
    )
