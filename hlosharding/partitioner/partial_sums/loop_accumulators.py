"""What a loop accumulates: arrays of its carry that the body only adds to, so that their reduction waits for its end.

Floor: partitioner.  Looks at instructions; of values only at what was added on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hlosharding.ir import ElementReaders, Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.partial_sums.deferred_reductions import is_wanted_partial, waiting_pays
from hlosharding.partitioner.partial_sums.partial_sum_ops import STACKING, WIDE, deferral_rule, is_linear, terms_of
from hlosharding.partitioner.value import DeferredReduction, Value

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
