"""What a loop accumulates: arrays of its carry that the body only adds to, so that their reduction waits for its end.

Floor: partitioner.  Looks at instructions; of values only at what was added on the way.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.partial_sums.partial_sum_ops import WIDE, deferral_rule, is_linear
from hlosharding.partitioner.value import DeferredReduction, Value

Paths = dict[int, tuple[Instruction, ...]]
"""By its leaf's number in the carry, all that an accumulator goes through, from its element to what is given back."""


def is_only_reader(element: Instruction) -> bool:
    """Is a tuple's element read by this one instruction, and the tuple not as a whole?"""
    [source] = element.operands
    if source.is_root:
        return False
    return all(
        u.opcode == "get-tuple-element" and (u is element or u.tuple_index != element.tuple_index) for u in source.users
    )


def accumulators(carry: Instruction, result: Instruction, hidden: frozenset[int]) -> Paths:
    """Arrays of a loop's carry that its body does nothing with but pass them on, linear ops on the way.

    `carry` is the body's parameter, `result` its root; `hidden` are leaves that others read.
    """
    if result.opcode != "tuple":
        return {}
    found = ((number, _passed_on(array, result, number)) for number, array in _arrays(carry) if number not in hidden)
    return {number: path for number, path in found if path is not None}


def _arrays(packed: Instruction, first: int = 0) -> Iterator[tuple[int, Instruction]]:
    """What is taken out of a tuple by one reader each, with the number of its leaf."""
    if any(u.opcode != "get-tuple-element" for u in packed.users):
        return
    for element in filter(is_only_reader, packed.users):
        number = first + first_leaf(packed.shape, element.tuple_index)
        if element.shape.is_array:
            yield number, element
        elif element.shape.is_tuple:
            yield from _arrays(element, number)


def first_leaf(shape: Shape, index: int) -> int:
    """The number of the first leaf of a tuple's element."""
    return sum(len(s.leaves) for s in shape.tuple_shapes[:index])


def _passed_on(element: Instruction, result: Instruction, number: int) -> tuple[Instruction, ...] | None:
    """How the element goes through linear ops, at least one of them a sum, to its own place in the result."""
    path, sums = [element], 0
    while len(element.users) == 1:
        user = element.users[0]
        place = _leaf_of(result, element)
        if place is not None:
            return tuple(path) if sums and place == number else None
        if user.opcode == "tuple":
            following, loops = _through_tuple(element, user)
            if following is None:
                return None
            element, sums = following, sums + loops
        elif not is_linear(user) or user.operands.count(element) > 1:
            return None
        else:
            element, sums = user, sums + deferral_rule(user).is_sum
        path.append(element)
    return None


def _leaf_of(result: Instruction, element: Instruction) -> int | None:
    """Which leaf of `result` the element is, if tuples are all that is between them."""
    number = 0
    while element is not result:
        user = element.users[0] if len(element.users) == 1 else None
        if user is None or user.opcode != "tuple" or user.operands.count(element) > 1:
            return None
        number += first_leaf(user.shape, user.operands.index(element))
        element = user
    return number


def _through_tuple(element: Instruction, packed: Instruction) -> tuple[Instruction | None, int]:
    """Where an element of a tuple is read again, past the loop that the tuple enters; and how many loops those are."""
    if packed.operands.count(element) > 1 or packed.is_root:
        return None, 0
    place, loops = packed.operands.index(element), 0
    while len(packed.users) == 1 and packed.users[0].opcode == "while":
        packed, loops = packed.users[0], loops + 1
    read = [u for u in packed.users if u.opcode == "get-tuple-element" and u.tuple_index == place]
    return (read[0] if len(read) == 1 and is_only_reader(read[0]) else None), loops


def deferred_sums(context: Context, path: tuple[Instruction, ...]) -> Iterator[tuple[Instruction, Value]]:
    """The partial sums that are added to an accumulator on its way, or that it is in the end; each with the op it is
    of.
    """
    sums = [i for i in path if deferral_rule(i).is_sum]
    for inst in (*(o for i in sums for o in i.operands if o not in path), path[-1]):
        made = context.values[inst]
        if isinstance(made, DeferredReduction):
            yield made.maker or inst, made.partial


def may_accumulate(value: Value) -> bool:
    """May partial sums of many trips be added up before they are reduced?"""
    return value.reduce_kind != "add" or value.shape.is_integral or value.shape.element_type in WIDE
