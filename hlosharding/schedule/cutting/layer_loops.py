"""Loops over layers: which arrays of the carry are stacks, of which each trip reads or writes one row.

Floor: schedule.  A `scan` over layers becomes a counted loop that slices row t of the stacked weights, and puts row t
of what it collects into a stack; its gradient counts likewise, and slices row n-1-t.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hlosharding.ir import DEVICE_NUMBERS, Instruction, LoopCounter, hands_on, loop_counter, while_parts
from hlosharding.schedule.cutting.microbatched import find_reached
from hlosharding.spmd import Devices, integers_of

RowOrders = Mapping[int, bool]
"""Of elements of the carry, do trips take their rows from the last one on?"""


@dataclass(frozen=True)
class LayerLoop:
    """A counted loop, as one that may be cut between trips."""

    loop: Instruction
    counter: LoopCounter
    reads: RowOrders
    """Stacks that stay as they are; trips read a row each, and nothing else."""
    writes: RowOrders
    """Stacks of which trips write a row each, and read nothing."""
    kept: frozenset[int]
    """Elements of the carry that trips hand on as they are, `reads` among them."""
    only_rows: bool
    """Does the body ask for the trip's number only to find rows?"""

    @property
    def stacks(self) -> RowOrders:
        """Both kinds."""
        return {**self.reads, **self.writes}


def find_layer_loop(loop: Instruction) -> LayerLoop | None:
    """A loop with its stacks; None for a loop without a counter, whose carry is no plain tuple, or whose trips take the
    rows of a stack neither from the first one on nor from the last."""
    counter, body = loop_counter(loop), while_parts(loop).body
    [carry] = body.parameters
    elements = {user.tuple_index: user for user in carry.users if user.opcode == "get-tuple-element"}
    # Each element is taken once, so that the users of a stack are the users of one instruction.
    is_plain = body.root.opcode == "tuple" and len(elements) == len(carry.users) == len(set(elements))
    if counter is None or not is_plain or loop.operands[0].opcode != "tuple" or counter.index not in elements:
        return None
    numbers = _TripNumbers(elements[counter.index], counter)
    reads, writes = dict[int, np.ndarray](), dict[int, np.ndarray]()
    for index, element in elements.items():
        result = body.root.operands[index]
        # What becomes another element, too, is wanted as a whole by the trip that has it there.
        if element.shape.dims[:1] != (counter.trips,) or body.root.operands.count(result) > 1:
            continue
        slices = [user for user in element.users if user is not body.root]
        if result is element and slices and all(_takes_row(user, element) for user in slices):
            rows = [numbers.of(user.operands[1]) for user in slices]
            if rows[0] is not None and all(other is not None and np.array_equal(rows[0], other) for other in rows):
                reads[index] = rows[0]
        elif _puts_row(result, element):
            rows = numbers.of(result.operands[2])
            if rows is not None:
                writes[index] = rows
    kept = frozenset(index for index in elements if hands_on(body, index))
    if not all(_is_in_order(rows) for rows in (*reads.values(), *writes.values())):
        return None
    only_rows = numbers.are_all_rows_of({elements[index] for index in (*reads, *writes)})
    return LayerLoop(loop, counter, _from_last(reads), _from_last(writes), kept, only_rows)


def _from_last(taken: Mapping[int, np.ndarray]) -> RowOrders:
    return {index: bool(rows[0]) for index, rows in taken.items()}


def _is_in_order(rows: np.ndarray) -> bool:
    """All of them, each once, up or down."""
    return any(np.array_equal(rows[::step], np.arange(len(rows))) for step in (1, -1))


def _takes_row(user: Instruction, stack: Instruction) -> bool:
    is_slice = user.opcode == "dynamic-slice" and user.operands[0] is stack
    return is_slice and user.shape.dims == (1, *stack.shape.dims[1:])


def _puts_row(result: Instruction, stack: Instruction) -> bool:
    is_update = result.opcode == "dynamic-update-slice" and result.operands[0] is stack and len(stack.users) == 1
    return is_update and result.operands[1].shape.dims == (1, *stack.shape.dims[1:]) and len(result.users) == 1


class _TripNumbers:
    """Integers of a loop's body by trip, where they follow from the counter."""

    def __init__(self, counted: Instruction, counter: LoopCounter) -> None:
        self.trips = Devices(counter.trips, 1)  # one number a trip, as elsewhere one a device
        self.known: dict[Instruction, np.ndarray | None] = {
            counted: counter.start + counter.step * np.arange(counter.trips, dtype=np.int64)
        }
        self.counted = counted
        self.rows: set[Instruction] = set()
        root = counted.computation.root
        following = root.operands[counter.index]
        is_counted_on = following.users == [root] and root.operands.count(following) == 1
        self.next = following if is_counted_on else None

    def of(self, inst: Instruction) -> np.ndarray | None:
        """Of a row's number."""
        self.rows.add(inst)
        return self._of(inst)

    def _of(self, inst: Instruction) -> np.ndarray | None:
        if inst not in self.known:
            # `integers_of` would take a device's number for the trip's, for trips stand where it has devices.
            is_place = inst.opcode in DEVICE_NUMBERS | {"parameter", "get-tuple-element"}
            operands = [] if is_place else [self._of(operand) for operand in inst.operands]
            self.known[inst] = None if is_place else integers_of(inst, operands, self.trips)
        return self.known[inst]

    def are_all_rows_of(self, stacks: Collection[Instruction]) -> bool:
        """Does all that is made of the counter end in numbers of these stacks' rows, or in the next count?"""
        reached = find_reached([self.counted], lambda value: self._made_of(value, stacks))
        return all(self.known.get(value) is not None for value in reached)

    def _made_of(self, value: Instruction, stacks: Collection[Instruction]) -> Iterator[Instruction]:
        # A number that is a row's of one stack may be a place in an array of which each part of the loop has all.
        is_row = value in self.rows
        return (u for u in value.users if u is not self.next and not (is_row and u.operands[0] in stacks))
