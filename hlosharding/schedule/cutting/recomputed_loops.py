"""Backward loops that make anew what forward loops stacked: time for memory, as by `jax.checkpoint` of each layer.

Floor: schedule.

    forward    h -> a, b, c -> next h      stacks rows of a, b and c      stacks rows of h alone
    backward   reads rows of a, b and c                                   reads a row of h, and makes a, b and c of it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlosharding.ir import (
    Computation,
    Edit,
    Instruction,
    Module,
    Shape,
    add_to_carry,
    drop_from_carry,
    rewrite,
    while_parts,
)
from hlosharding.schedule.cutting.layer_loops import LayerLoop, find_layer_loop
from hlosharding.schedule.cutting.microbatched import find_reached
from hlosharding.schedule.cutting.repeated_ops import may_be_repeated, repeat_op


def recompute_loops(edit: Edit) -> None:
    """Let backward loops over layers read what each layer was given, and make the rest of it again."""
    for found in _find_recomputed(edit.module):
        _Writer(edit, found).write()


def recomputed_loops(module: Module) -> list[Instruction]:
    """The forward loops whose layers are made again by `recompute_loops`."""
    return [found.pair.forward.loop for found in _find_recomputed(module)]


def _find_recomputed(module: Module) -> list[_Recomputed]:
    return [found for pair in _find_pairs(module) if (found := _Recomputed.of(pair)) is not None]


@dataclass(frozen=True)
class _Pair:
    forward: LayerLoop
    backward: LayerLoop
    stacks: Mapping[int, int]
    """By element of the backward carry, of which each trip reads a row, the element of the forward carry."""

    def row(self, index: int) -> Instruction:
        """What a forward trip puts into the stack that is this element of the backward carry."""
        return while_parts(self.forward.loop).body.root.operands[self.stacks[index]].operands[1]

    def is_state(self, value: Instruction) -> bool:
        """Is it an element of the forward carry that each trip gets from the one before?"""
        known = {*self.forward.kept, self.forward.counter.index}
        return _is_element(value) and value.tuple_index not in known


def _find_pairs(module: Module) -> Iterator[_Pair]:
    """Loops over layers, and those that read what they stacked; each loop once."""
    found = {inst: find_layer_loop(inst) for inst in module.entry.instructions if _is_plain_loop(inst, module)}
    loops = {inst: loop for inst, loop in found.items() if loop is not None}
    free = set(loops)
    for loop, backward in loops.items():
        for (source, _), stacks in _stacks_read(backward, loops).items():
            counter = loops[source].counter
            # The counter is the number of the row then: `_stack` and `_number_as` take the one for the other.
            if {loop, source} <= free and (counter.start, counter.step) == (0, 1):
                free -= {loop, source}
                yield _Pair(loops[source], backward, stacks)


def _stacks_read(
    backward: LayerLoop, loops: Mapping[Instruction, LayerLoop]
) -> dict[tuple[Instruction, bool], dict[int, int]]:
    """By loop that wrote them, from the first row on, the stacks that nothing but this one reads; apart those of which
    a trip reads other rows."""
    found = dict[tuple[Instruction, bool], dict[int, int]]()
    for index, is_from_last in backward.reads.items():
        value = backward.loop.operands[0].operands[index]
        source = value.operands[0] if value.opcode == "get-tuple-element" else value
        # `is False`: True are stacks that are written from the last row on, None what is no such stack.
        if source in loops and loops[source].writes.get(value.tuple_index) is False and len(value.users) == 1:
            found.setdefault((source, is_from_last), {})[index] = value.tuple_index
    return found


def _is_plain_loop(inst: Instruction, module: Module) -> bool:
    """Does only what takes elements read it, and is nothing said of how its carry lies?"""
    if inst.opcode != "while" or any(user.opcode != "get-tuple-element" for user in inst.users):
        return False
    carries = inst, inst.operands[0], while_parts(inst).body.root, *(c.parameters[0] for c in inst.called)
    # A sharding of a carry has a leaf for each element; here elements come and go.
    return not any(module.sharding(each) for each in carries)


@dataclass(frozen=True)
class _Recomputed:
    """What a backward loop makes again."""

    pair: _Pair
    rows: Mapping[int, Instruction]
    """By element of the backward carry, the row that it need not read."""
    ops: Sequence[Instruction]
    """All that is made again, in the forward body, operands first; with what it is made of there."""
    read: Mapping[Instruction, int]
    """What each layer was given: elements of the forward carry, and those of the backward one that stack them."""
    missing: Sequence[Instruction]
    """Those that nobody stacks."""

    @classmethod
    def of(cls, pair: _Pair) -> _Recomputed | None:
        """None where that saves no memory."""
        states = {index: _unpacked(pair.row(index)) for index in pair.stacks}
        stacked = {state: index for index, state in states.items() if pair.is_state(state)}
        rows = {index: pair.row(index) for index in pair.stacks if index not in stacked.values()}
        rows = {index: row for index, row in rows.items() if all(map(may_be_repeated, _ops_behind([row])))}
        ops = _ops_behind(rows.values())
        given = [op for op in ops if pair.is_state(op)]
        missing = [op for op in given if op not in stacked]
        if sum(row.shape.byte_size for row in rows.values()) <= sum(op.shape.byte_size for op in missing):
            return None
        return cls(pair, rows, ops, {op: stacked[op] for op in given if op in stacked}, missing)


def _is_element(value: Instruction) -> bool:
    """Of the carry, as a trip begins."""
    return value.opcode == "get-tuple-element" and value.operands[0].opcode == "parameter"


def _source(value: Instruction) -> Instruction:
    """What an element of a tuple is that is made here."""
    while value.opcode == "get-tuple-element" and value.operands[0].opcode == "tuple":
        value = value.operands[0].operands[value.tuple_index]
    return value


def _unpacked(row: Instruction) -> Instruction:
    """What was made a row of one."""
    row = _source(row)
    return _source(row.operands[0]) if row.opcode == "reshape" else row


def _ops_behind(rows: Iterable[Instruction]) -> list[Instruction]:
    """Rows, and what they are made of, operands first, elements of the carry among them."""
    found = find_reached(map(_source, rows), lambda op: () if _is_element(op) else map(_source, op.operands))
    body = next(iter(found)).computation.instructions if found else ()
    return [op for op in body if op in found]


class _Writer:
    """Writes both loops anew."""

    def __init__(self, edit: Edit, found: _Recomputed) -> None:
        self.edit, self.found = edit, found
        self.forward, self.backward = found.pair.forward.loop, found.pair.backward.loop
        self.body = while_parts(self.backward).body
        self.carry = {each.tuple_index: each for each in self.body.parameters[0].users}
        self.slices = {
            index: [user for user in self.carry[index].users if user.opcode == "dynamic-slice"]
            for index in found.pair.stacks
        }
        self.number = next(slices[0].operands[1] for slices in self.slices.values())
        self.made = dict[Instruction, Instruction]()
        """Of the forward body, what takes its place in the backward one."""

    def write(self) -> None:
        stacks = [self._stack(state) for state in self.found.missing]
        kept = [op for op in self.found.ops if _is_element(op) and op.tuple_index in self.found.pair.forward.kept]
        given = self.forward.operands[0].operands
        entered = add_to_carry(self.edit, self.backward, [*stacks, *(given[op.tuple_index] for op in kept)])
        rows = [self._take_row(stack) for stack in entered[: len(stacks)]]
        self.made.update(zip((*self.found.missing, *kept), (*rows, *entered[len(stacks) :]), strict=True))
        self.made.update((state, self._unpack(self.slices[index][0])) for state, index in self.found.read.items())
        for op in self.found.ops:
            self._make_again(op)
        for index, row in self.found.rows.items():
            for taken in self.slices[index]:
                self.edit.replace_uses(taken, self.made[_source(row)])
                self.edit.remove_with_unused_operands(taken)
        # Last, because elements get other numbers: all before goes by those that they had.
        drop_from_carry(self.edit, self.backward, self.found.rows.keys())
        drop_from_carry(self.edit, self.forward, {self.found.pair.stacks[index] for index in self.found.rows})

    def _make_again(self, op: Instruction) -> None:
        if op in self.made:
            return
        if _is_element(op):  # the counter
            self.made[op] = self._number_as(op)
            return
        self.made[op] = repeat_op(self.edit, op, [self.made[_source(operand)] for operand in op.operands], self.body)

    def _number_as(self, counter: Instruction) -> Instruction:
        """The number of the row."""
        if self.number.shape.element_type == counter.shape.element_type:
            return self.number
        return self.edit.create(self.body, "convert", (self.number,), shape=counter.shape)

    # ---- stacks of what layers were given

    def _stack(self, state: Instruction) -> Instruction:
        """What the forward loop stacks of an element of its carry."""
        edit, entry, body = self.edit, self.forward.computation, state.computation
        shape = state.shape.with_dims((self.found.pair.forward.counter.trips, *state.shape.dims))
        zero = self._zero(entry, state.shape)
        empty = edit.create(entry, "broadcast", (zero,), shape=shape, metadata_of=self.forward)
        [stack] = add_to_carry(edit, self.forward, [empty])
        row = edit.create(body, "reshape", (state,), shape=state.shape.with_dims((1, *state.shape.dims)))
        counter = next(e for e in body.parameters[0].users if e.tuple_index == self.found.pair.forward.counter.index)
        places = counter, *[self._zero(body, counter.shape)] * state.shape.rank
        put = edit.create(body, "dynamic-update-slice", (stack, row, *places), metadata_of=self.forward)
        rewrite.replace_operand(body.root, stack.tuple_index, put)
        return edit.create(entry, "get-tuple-element", (self.forward,), tuple_index=stack.tuple_index)

    def _take_row(self, stack: Instruction) -> Instruction:
        sizes = (1, *stack.shape.dims[1:])
        places = self.number, *[self._zero(self.body, self.number.shape)] * (stack.shape.rank - 1)
        row = self.edit.create(
            self.body, "dynamic-slice", (stack, *places), dynamic_slice_sizes=sizes, metadata_of=self.backward
        )
        return self._unpack(row)

    def _unpack(self, row: Instruction) -> Instruction:
        return self.edit.create(self.body, "reshape", (row,), shape=row.shape.with_dims(row.shape.dims[1:]))

    def _zero(self, where: Computation, like: Shape) -> Instruction:
        zero = np.zeros((), like.dtype)
        return self.edit.create(where, "constant", shape=like.with_dims(()), literal=zero)
