"""Deferred reductions: one is made when somebody needs the sum, not when the partial sums are made.

Floor: partitioner.  A deferred value whose only user is linear passes through it as partial sums where that saves
something: two gradients that are added cost one all-reduce, and a reduction meets a sharding of fewer elements, so that
it can be a reduce-scatter.  Where nothing is saved the sum is made at once.  Never where the later value is larger.

    %a = dot(...)            partial sums                 without: all-reduce a, all-reduce b, add
    %b = dot(...)            partial sums
    %c = add(%a, %b)         partial sums of both         with: add, all-reduce c

Several users may each cut their part out of partial sums, if waiting pays for all of them: gradients of weights that a
program joins to compute with them at once, and that a loop adds up each on its own.

A loop accumulates arrays of its carry that the body only adds to: their reduction waits for its end, and so does that
of what it starts with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hlosharding.ir import ElementReaders, Instruction, while_parts
from hlosharding.partitioner.context import Context, PlanContext
from hlosharding.partitioner.partial_sums.partial_sum_ops import (
    DEFERRAL_RULES,
    STACKING,
    WIDE,
    deferral_rule,
    is_linear,
    linear_operands,
    terms_of,
)
from hlosharding.partitioner.resharding import is_cut_up
from hlosharding.partitioner.value import DeferredReduction, Value
from hlosharding.sharding import HloSharding

_LOOK_BACK = 8
"""Ops in a row through which it is asked whether a value may be partial sums; beyond them it may."""


def pass_through(context: Context, inst: Instruction) -> DeferredReduction | None:
    """The instruction on partial sums, if it is linear in deferred operands and waiting saves something; else None."""
    rule = DEFERRAL_RULES.get(inst.opcode)
    if rule is None or rule.on_partial_sums is None:
        return None
    source = next((o for o in inst.operands if isinstance(context.values.get(o), DeferredReduction)), None)
    if source is None or not waiting_pays(context, source, inst):
        return None
    made = rule.on_partial_sums(context, inst)
    return None if made is None else DeferredReduction(made, context.wanted_leaves(inst)[0])


def may_wait(context: PlanContext, source: Instruction) -> bool:
    """Would partial sums that `source` makes be reduced later than here: at its only user, or at all that cut it?"""
    if source.is_root or not source.users or not (len(source.users) == 1 or is_cut_up(source)):
        return False
    return all(waiting_pays(context, source, user) for user in source.users)


def waiting_pays(context: PlanContext, source: Instruction, inst: Instruction) -> bool:
    """Does a later op that the partial sums of `source` pass through add up several of them, or want less of the sum?
    Or does the caller want them as they are?

    If not, the reduction is made at once: then what follows it can be fused into its readers.  Past what the user
    annotated partial sums go only on the way to a sum in the same sharding.
    """
    return _pays(context, source, source, inst, None)


def _pays(
    context: PlanContext, first: Instruction, source: Instruction, inst: Instruction, annotated: HloSharding | None
) -> bool:
    """Is it so of the partial sums of `first`, which `source` has passed on, behind an op annotated so or not?"""
    rule, names, may_defer = DEFERRAL_RULES.get(inst.opcode), context.decisions.annotated, context.may_defer
    while rule is not None and rule.on_partial_sums is not None:
        if names and source.name in names:
            annotated = context.wanted(source) or annotated
        if annotated is not None and context.wanted(inst) != annotated:
            return False
        # Of a sum it is asked below whether all its terms may wait.
        if (may_defer and inst in may_defer and not rule.is_sum) or is_wanted_partial(context.wanted(inst)):
            return True
        # Several users that each cut a part out would make a reduction each, in place of one for all.
        if len(source.users) == 1 and _reduces_less(context, first, inst):
            return True
        if rule.is_sum and _sums_only_partial_sums(context, first, source, inst):
            return True
        if inst.is_root or not inst.users:
            return False
        if len(inst.users) > 1:
            return is_cut_up(inst) and all(_pays(context, first, inst, user, annotated) for user in inst.users)
        source, inst = inst, inst.users[0]
        rule = DEFERRAL_RULES.get(inst.opcode)
    return annotated is None and _starts_a_sum(context, source, inst)


def _starts_a_sum(context: PlanContext, source: Instruction, packed: Instruction) -> bool:
    """Is it the start of what a loop adds up, which is reduced behind the loop?"""
    if packed.opcode != "tuple" or [user.opcode for user in packed.users] != ["while"]:
        return False
    body, leaves = while_parts(packed.users[0]).body, packed.shape.first_leaves
    paths = accumulators(body.parameters[0], body.root, frozenset(), context.decisions.readers)
    entered = (leaves[n] for n, operand in enumerate(packed.operands) if operand is source)
    return all(leaf in paths and not only_stacks(paths[leaf]) for leaf in entered)


def is_wanted_partial(wanted: HloSharding | None) -> bool:
    """Are partial sums wanted, and not their sum?"""
    return wanted is not None and (wanted.is_unreduced() or "unreduced" in wanted.subgroup_types)


def _reduces_less(context: PlanContext, first: Instruction, inst: Instruction) -> bool:
    """Does a reduction of `inst` cost less than one of `first`?

    A reduction for all costs twice what one costs that leaves each device its part.
    """
    size, before = inst.shape.byte_size, first.shape.byte_size
    if not before <= size < 2 * before:
        return size < before
    shardings = context.shardings
    # Of less than twice the size it still costs less, if each device keeps its part alone.
    after, given = shardings.get(inst.id), shardings.get(first.id)
    return after is not given and after is not None and after.num_tiles > (1 if given is None else given.num_tiles)


def _sums_only_partial_sums(context: PlanContext, first: Instruction, source: Instruction, inst: Instruction) -> bool:
    """Are all terms of the sum `inst` partial sums, or may they be?"""
    others = [o for o in terms_of(inst) if o is not source and o not in context.may_defer]
    # Of rows that are in a table by now all of the table would be reduced, unless it is for the sake of others: two
    # towers of 262,144 rows took 1.35 of the time for 32 rows.
    if source.shape.byte_size > first.shape.byte_size:
        return all(context.is_deferred(o) for o in others)
    return all(_may_wait(context, o) for o in others)


def _may_wait(context: PlanContext, operand: Instruction, look: int = _LOOK_BACK) -> bool:
    """Is it a deferred reduction, or, where it is not lowered yet, may it become one?"""
    known, rule = context.is_deferred(operand), deferral_rule(operand)
    if known is not None or rule.makes_partial_sums or rule.on_partial_sums is None:
        return rule.makes_partial_sums if known is None else known
    if look == 0:
        return True
    if rule.is_sum:
        return all(_may_wait(context, term, look - 1) for term in terms_of(operand))
    sources = ([operand.operands[n] for n in numbers] for numbers in linear_operands(operand))
    return any(all(_may_wait(context, source, look - 1) for source in each) for each in sources)


Paths = dict[int, tuple[Instruction, ...]]
"""By its leaf's number in the carry, all that an accumulator goes through, from its element to what is given back."""


def accumulators(carry: Instruction, result: Instruction, hidden: frozenset[int], readers: ElementReaders) -> Paths:
    """Arrays of a loop's carry that its body does nothing with but pass them on, linear ops on the way.

    `carry` is the body's parameter, `result` its root; `hidden` are leaves that others read.
    """
    if result.opcode != "tuple":
        return {}
    look = _Accumulators(result, readers)
    found = ((number, look.passed_on(array, number)) for number, array in look.arrays(carry) if number not in hidden)
    return {number: path for number, path in found if path is not None}


class _Accumulators:
    """How arrays of a carry reach the body's `result`."""

    def __init__(self, result: Instruction, readers: ElementReaders) -> None:
        self.result, self.readers = result, readers
        self._places: dict[Instruction, dict[Instruction, int]] = {}
        """By a tuple, the number of each operand that it has once."""

    def arrays(self, packed: Instruction, first: int = 0) -> Iterator[tuple[int, Instruction]]:
        """What is taken out of a tuple by one reader each, with the number of its leaf."""
        if any(u.opcode != "get-tuple-element" for u in packed.users):
            return
        for element in filter(self.readers.is_only, packed.users):
            number = first + packed.shape.first_leaves[element.tuple_index]
            if element.shape.is_array:
                yield number, element
            elif element.shape.is_tuple:
                yield from self.arrays(element, number)

    def passed_on(self, element: Instruction, number: int) -> tuple[Instruction, ...] | None:
        """How the element goes through linear ops, at least one of them a sum, to its own place in the result."""
        path, sums = [element], 0
        while len(element.users) == 1:
            user = element.users[0]
            place = self._leaf_of_result(element)
            if place is not None:
                return tuple(path) if sums and place == number else None
            if user.opcode == "tuple":
                following, loops = self._through_tuple(element, user)
                if following is None:
                    return None
                element, sums = following, sums + loops
            elif not _adds_to(user, element):
                return None
            else:
                element, sums = user, sums + deferral_rule(user).is_sum
            path.append(element)
        return None

    def _leaf_of_result(self, element: Instruction) -> int | None:
        """Which leaf of the result the element is, if tuples are all that is between them."""
        number = 0
        while element is not self.result:
            user = element.users[0] if len(element.users) == 1 else None
            place = None if user is None or user.opcode != "tuple" else self._place(element, user)
            if user is None or place is None:
                return None
            number += user.shape.first_leaves[place]
            element = user
        return number

    def _through_tuple(self, element: Instruction, packed: Instruction) -> tuple[Instruction | None, int]:
        """Where an element of a tuple is read again, past the loops that the tuple enters; and how many these are."""
        place, loops = self._place(element, packed), 0
        if place is None or packed.is_root:
            return None, 0
        while len(packed.users) == 1 and packed.users[0].opcode == "while":
            packed, loops = packed.users[0], loops + 1
        read = self.readers.of(packed, place)
        return (read[0] if len(read) == 1 and self.readers.is_only(read[0]) else None), loops

    def _place(self, element: Instruction, packed: Instruction) -> int | None:
        """Which operand of a tuple the element is; None where it is several."""
        # Once for each tuple: programs carry thousands of arrays through loops, of which each would look through all
        # operands.
        if packed not in self._places:
            times = Counter(packed.operands)
            self._places[packed] = {o: n for n, o in enumerate(packed.operands) if times[o] == 1}
        return self._places[packed].get(element)


def _adds_to(user: Instruction, element: Instruction) -> bool:
    """Is a linear op done on the element, at most with something added to it?"""
    if user.opcode in STACKING and user.operands[0] is not element:
        return False
    return is_linear(user) and user.operands.count(element) == 1


def only_stacks(path: tuple[Instruction, ...]) -> bool:
    """Does each trip write a row of its own, so that as much is reduced behind the loop as inside?"""
    sums = [inst for inst in path if deferral_rule(inst).is_sum]
    return bool(sums) and all(inst.opcode in STACKING for inst in sums)


def is_awaited(context: Context, loop: Instruction, leaf: int) -> bool:
    """Would the reduction wait on behind the loop, too: for the caller, for other sums, for who wants less of it?"""
    if is_wanted_partial(context.wanted_leaves(loop)[leaf]):
        return True
    taken = (user for user in loop.users if user.opcode == "get-tuple-element" and user.shape.is_array)
    read = [user for user in taken if loop.shape.first_leaves[user.tuple_index] == leaf]
    if len(read) != 1 or not context.decisions.readers.is_only(read[0]) or len(read[0].users) != 1:
        return False
    return read[0] in context.may_defer or waiting_pays(context, read[0], read[0].users[0])


def deferred_sums(context: Context, path: tuple[Instruction, ...]) -> Iterator[tuple[Instruction, Value]]:
    """The partial sums that are added to an accumulator on its way, or that it is in the end; each with the op it is
    of.
    """
    sums = [i for i in path if deferral_rule(i).is_sum]
    for inst in (*(o for i in sums for o in terms_of(i) if o not in path), path[-1]):
        made = context.values[inst]
        if isinstance(made, DeferredReduction):
            yield made.maker or inst, made.partial


def may_accumulate(value: Value) -> bool:
    """May partial sums of many trips be added up before they are reduced?"""
    return value.reduce_kind != "add" or value.shape.is_integral or value.shape.element_type in WIDE
