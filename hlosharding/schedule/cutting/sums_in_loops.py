"""Sums over microbatches that loops make in their bodies, made behind the loops instead.

Floor: schedule.  A scan over layers puts the gradient of each layer's weights, summed over the microbatches, into one
stacked array.  If all that happens to the sum in there is linear, the loop may do it to its own microbatch's term: what
it gives back is then a term of the stacked sum.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto
from typing import NoReturn

from hlosharding.errors import ScheduleError
from hlosharding.ir import Instruction, Module, NameUniquer, is_neutral, rewrite, while_parts
from hlosharding.partitioner import linear_operands
from hlosharding.schedule.cutting.leaf_walk import LeafWalk
from hlosharding.schedule.cutting.microbatched import error_at


class Term(Enum):
    """An array in all microbatches: the same in each, zeros, its own in each, or a term of a sum over them."""

    SAME = auto()
    ZERO = auto()
    VARYING = auto()
    TERM = auto()


Terms = tuple[Term, ...]
"""Of each leaf of a value."""


def move_sums_behind_loops(module: Module, varying: Collection[int], names: NameUniquer) -> list[Instruction]:
    """Copies, in the entry, of terms that ops with computations give back: the terms' sums are what is to be read.

    `varying`: numbers of the parameters that differ from microbatch to microbatch; `names`: of all instructions.  The
    sums in computations become terms; those of the entry stay.  Raises ScheduleError where a sum is needed before the
    loop ends.
    """
    walk, kinds, found = _TermWalk(), dict[Instruction, Terms](), list[Instruction]()
    for inst in list(module.entry.instructions):  # a copy: sums are put in, and taken out
        operands = [kinds[operand] for operand in inst.operands]
        if inst.opcode == "parameter":
            kinds[inst] = _fill(inst, Term.VARYING if inst.parameter_number in varying else Term.SAME)
        elif inst.opcode == "all-reduce":
            kinds[inst] = _fill(inst, Term.SAME)
        else:
            if inst.opcode == "while":
                operands = [_hand_terms_on(inst, operands[0], found, walk)]
            kinds[inst] = walk.behind(inst, operands)
        if inst.shape.is_array and kinds[inst] == (Term.TERM,):
            found.append(insert_sum_behind(inst, names, like=inst))
            kinds[found[-1]] = (Term.SAME,)
    return found


def _hand_terms_on(loop: Instruction, given: Terms, sums: list[Instruction], walk: _TermWalk) -> Terms:
    """What a loop is given, terms in place of their sums where it may go on with them, as the next part of a loop over
    layers does with the gradient of what all layers share."""
    carry = loop.operands[0]
    for place, operand in enumerate(carry.operands if carry.opcode == "tuple" and len(carry.users) == 1 else ()):
        if operand in sums:
            leaf = carry.shape.first_leaves[place]
            handed_on = (*given[:leaf], Term.TERM, *given[leaf + 1 :])
            try:
                walk.behind(loop, [handed_on])
            except ScheduleError:
                # The loop does more with it than what is linear: the sum is made ahead of it.
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


class _TermWalk(LeafWalk[Term]):
    """What becomes of terms: from ops to the ops that read them."""

    def merge(self, inst: Instruction, left: Term, right: Term) -> Term:
        if left == right or right == Term.ZERO:
            return left
        if left == Term.ZERO:
            return right
        # Not with a term: what is the same in each microbatch would count as often as there are microbatches.
        return Term.VARYING if {left, right} == {Term.SAME, Term.VARYING} else _refuse(inst)

    def behind_loop(self, loop: Instruction, carry: Terms) -> Terms:
        found = super().behind_loop(loop, carry)
        goes_on = self.walk(while_parts(loop).condition, (found,))
        return _make_varying(loop, found) if goes_on == (Term.VARYING,) else found

    def behind_branches(self, inst: Instruction, operands: Sequence[Terms]) -> Terms:
        found = super().behind_branches(inst, operands)
        return _make_varying(inst, found) if operands[0] == (Term.VARYING,) else found

    def of_op(self, inst: Instruction, operands: Sequence[Terms]) -> Terms:
        given = {term for operand in operands for term in operand}
        if inst.opcode == "all-reduce":
            return _fill(inst, Term.TERM if Term.TERM not in given else _refuse(inst))
        if Term.TERM in given:
            return (Term.TERM,) if _is_linear(inst, operands) else _refuse(inst)
        if inst.shape.is_array and is_neutral(inst, "add"):
            return (Term.ZERO,)
        return _fill(inst, Term.VARYING if Term.VARYING in given or inst.opcode == "partition-id" else Term.SAME)


def _is_linear(inst: Instruction, operands: Sequence[Terms]) -> bool:
    """In the terms among its operands together, all else being the same for each microbatch."""
    wanted = [
        [Term.TERM if n in together else Term.SAME for n in range(len(operands))] for together in linear_operands(inst)
    ]
    return any(all({*own} <= {kind, Term.ZERO} for own, kind in zip(operands, each, strict=True)) for each in wanted)


def _make_varying(inst: Instruction, terms: Terms) -> Terms:
    """Of what each microbatch does another number of times, or in another way."""
    return _fill(inst, Term.VARYING if Term.TERM not in terms else _refuse(inst))


def _fill(inst: Instruction, term: Term) -> Terms:
    """The same of all leaves of a value."""
    return (term,) * len(inst.shape.leaves)


def _refuse(inst: Instruction) -> NoReturn:
    what = f"%{inst.name} ({inst.opcode}) needs a sum over all microbatches before its loop, or branch, has ended"
    raise error_at(inst, what, "in there, do nothing with the sum that is not linear in it, or take one microbatch")
