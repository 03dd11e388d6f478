"""A loop over layers as several, one after the other: each takes a run of the trips, and its rows of the stacks.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from hlosharding.ir import Builder, Callees, Computation, ComputationBuilder, Instruction, Shape, same_op, while_parts
from hlosharding.schedule.cutting.layer_loops import LayerLoop

_ROW_OPS = {"dynamic-slice": 1, "dynamic-update-slice": 2}
"""Ops that take a row of a stack, or put one there, and which operand says which."""


class _TripRun(NamedTuple):
    """Trips that one part of a loop takes, as its counter counts them."""

    first: int
    length: int

    def first_row(self, total: int, is_from_last: bool) -> int:
        """Of a stack with so many rows the first that the trips take."""
        return total - self.first - self.length if is_from_last else self.first


class LoopParts:
    """Writes the parts of loops, each with computations of its own: propagation takes no shared ones."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def write(
        self, main: ComputationBuilder, found: LayerLoop, lengths: Sequence[int], given: Sequence[Sequence[Instruction]]
    ) -> list[list[Instruction]]:
        """What there is behind the last part, by element of the carry: the parts of stacks, all else as it is.

        `lengths`: how many trips each part takes.  `given`: so what there is ahead of the first one.  What trips keep
        each part takes from there, not from the part before: a mask is made where it is read, and need not come through
        all stages.
        """
        behind = [list(each) for each in given]
        for part, (first, length) in enumerate(zip(accumulate(lengths, initial=0), lengths, strict=False)):
            # parts that need not know which trips of the whole theirs are count alike
            run = _TripRun(0 if found.only_rows else first, length)
            # Of a stack that is taken from the last row on the first trips have the last part.
            place = [len(lengths) - 1 - part if found.stacks.get(n) else part for n in range(len(behind))]
            taken = [each[place[n] if n in found.stacks else 0] for n, each in enumerate(behind)]
            taken[found.counter.index] = _count(main, found, run.first)
            made = self._elements(main, found, run, taken) if length > 1 else self._one_trip(main, found, taken)
            for n, element in enumerate(made):
                if n not in found.kept:
                    behind[n][place[n] if n in found.writes else 0] = element
        # Parts that count alike end at their own length; behind all of them it is the number of all trips.
        behind[found.counter.index] = [_count(main, found, found.counter.trips)]
        return behind

    def _one_trip(self, main: ComputationBuilder, found: LayerLoop, taken: Sequence[Instruction]) -> list[Instruction]:
        """A single trip needs no loop, and a stack of one row no number of it."""
        body, callees = while_parts(found.loop).body, Callees(self._builder)
        made: dict[Instruction, Instruction] = {}
        packed: dict[Instruction, Sequence[Instruction]] = {body.parameters[0]: taken}
        for inst in body.instructions:
            operands = [made[operand] for operand in inst.operands if operand in made]
            if inst.opcode == "get-tuple-element" and inst.operands[0] in packed:
                made[inst] = packed[inst.operands[0]][inst.tuple_index]
            elif inst.opcode == "tuple" and all(user.opcode == "get-tuple-element" for user in inst.users):
                packed[inst] = operands
            elif inst.opcode in _ROW_OPS and operands[0].shape.dims != inst.operands[0].shape.dims:
                # A shorter operand is a stack, of which this part has the one row; other slices stay slices.
                made[inst] = operands[0 if inst.opcode == "dynamic-slice" else 1]
            elif inst.opcode != "parameter":
                made[inst] = same_op(main, inst, operands, callees.of(inst))
        return list(packed[body.root])

    def _elements(
        self, main: ComputationBuilder, found: LayerLoop, run: _TripRun, taken: Sequence[Instruction]
    ) -> list[Instruction]:
        """What a part with several trips makes of the carry."""
        shape = Shape.tuple(tuple(operand.shape for operand in taken))
        called = self._body(found, run, shape), self._condition(found, run, shape)
        carry = main.op("tuple", taken, metadata_of=found.loop)
        # Of an XLA that counted the trips of the whole loop nothing is kept.
        loop = main.add("while", shape, (carry,), like=found.loop, called=called, opaque="")
        elements = range(len(taken))
        return [main.op("get-tuple-element", (loop,), metadata_of=found.loop, tuple_index=n) for n in elements]

    def _body(self, found: LayerLoop, run: _TripRun, shape: Shape) -> Computation:
        """The body on shorter stacks."""
        body = while_parts(found.loop).body
        [carry] = body.parameters
        elements = {inst: inst.tuple_index for inst in carry.users}
        shapes = {carry: shape, body.root: shape, **{inst: shape.tuple_shapes[n] for inst, n in elements.items()}}
        stacks = {inst: found.stacks[n] for inst, n in elements.items() if n in found.stacks}
        firsts = {inst: run.first_row(found.counter.trips, is_from_last) for inst, is_from_last in stacks.items()}
        return Callees(self._builder, partial(_copy_op, shapes, firsts)).add_copy(body)

    def _condition(self, found: LayerLoop, run: _TripRun, shape: Shape) -> Computation:
        into = self._builder.computation(while_parts(found.loop).condition.name)
        count = into.op("get-tuple-element", (into.parameter(0, shape),), tuple_index=found.counter.index)
        end = _count(into, found, run.first + run.length)
        direction = "LT" if found.counter.step > 0 else "GT"
        into.root(into.op("compare", (count, end), comparison_direction=direction))
        return into.computation


def _copy_op(
    shapes: Mapping[Instruction, Shape],
    first_rows: Mapping[Instruction, int],
    into: ComputationBuilder,
    inst: Instruction,
    operands: Sequence[Instruction],
    called: Sequence[Computation],
) -> Instruction:
    """An op of a body on shorter stacks: what has another `shape`, and of the stacks the first rows."""
    shape, place = shapes.get(inst, inst.shape), _ROW_OPS.get(inst.opcode)
    if place is not None and inst.operands[0] in first_rows:
        row = _own_row(into, inst, operands[place], first_rows[inst.operands[0]])
        operands = (*operands[:place], row, *operands[place + 1 :])
        shape = operands[0].shape if place == 2 else shape
    return into.add_like(inst, inst.opcode, shape, operands, called, inst.name)


def _own_row(into: ComputationBuilder, inst: Instruction, row: Instruction, first: int) -> Instruction:
    if not first:
        return row
    number = into.constant(np.array(first, row.shape.dtype), metadata_of=inst)
    return into.op("subtract", (row, number), metadata_of=inst)


def _count(into: ComputationBuilder, found: LayerLoop, trips: int) -> Instruction:
    """What the counter is after so many trips."""
    counter = found.counter
    shape = found.loop.shape.tuple_shapes[counter.index]
    return into.constant(np.array(counter.start + counter.step * trips, shape.dtype), metadata_of=found.loop)
