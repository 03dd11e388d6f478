"""Which stage of a pipeline, and which pass, each instruction of one microbatch's program belongs to.

Floor: schedule.  Data flow alone does not tell a backward pass from a forward one; JAX writes `transpose(` into names
of ops that go backwards.  Forward ops are cut in program order into stages of equal time, where little crosses; a
backward op goes where what it reads lies; what runs once stays with the sums that it reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal

from hlosharding.cost import Machine, cost
from hlosharding.errors import ScheduleError
from hlosharding.ir import Instruction
from hlosharding.schedule.cutting.microbatched import Microbatched, is_backward, read_by

Phase = Literal["opening", "forward", "backward", "after"]
"""Passes of each microbatch: ahead of all, for sums that all need; forward; backward.  What runs once, behind."""

_SLACK = 0.1
"""How much longer than the mean a stage may be so that less crosses."""


@dataclass(frozen=True)
class Placement:
    """Phase and stage of each instruction that has one; the others are the same for all microbatches and cheap, and are
    computed where they are read."""

    phase: Mapping[Instruction, Phase]
    stage: Mapping[Instruction, int]
    home: Mapping[Instruction, int]
    """Of each parameter, and of each sum that is made ahead, the stage where it lies."""


def placed(program: Microbatched, num_stages: int, machine: Machine) -> Placement:
    """Cut a program into stages.  Raises ScheduleError where it has fewer ops than stages."""
    return _Placing(program, num_stages, machine).placement()


class _Placing:
    def __init__(self, program: Microbatched, num_stages: int, machine: Machine) -> None:
        self.program, self.count, self.machine = program, num_stages, machine
        self.entry = program.module.entry
        self.phase: dict[Instruction, Phase] = {}
        self.stage: dict[Instruction, int] = {}
        self.read_at: defaultdict[Instruction, set[int]] = defaultdict(set)
        """Stages at which a forward value, or a parameter, lies: where it is made, and where forward ops read it."""
        self.preparing: set[Instruction] = set()
        """Forward ops behind the first backward one: they prepare what a backward op reads, or recompute it."""
        self.behind_forward: set[Instruction] = set()
        """What is made of what a forward pass makes."""
        self.sources: dict[Instruction, tuple[Instruction, ...]] = {}
        """Of what is the same for all microbatches the parameters, and the early sums, it is made of."""

    def placement(self) -> Placement:
        self._find_phases()
        self._place_forward()
        for inst in self._of("backward"):
            self.stage[inst] = self._backward_stage(inst)
            if inst in self.preparing:
                self.read_at[inst].add(self.stage[inst])
        for inst in self._of("after"):
            self.stage[inst] = self._stage_behind(inst)
        return Placement(self.phase, self.stage, self._homes())

    def _of(self, phase: Phase) -> Iterator[Instruction]:
        return (inst for inst in self.entry.instructions if self.phase.get(inst) == phase)

    def _find_phases(self) -> None:
        has_begun = False
        for inst in self.entry.instructions:
            if inst.opcode == "tuple":
                continue
            if inst in self.program.opening:
                self.sources[inst] = (inst,)
            elif inst in self.program.ahead:
                continue
            elif inst in self.program.after:
                self.phase[inst] = "after"
            elif inst.opcode == "parameter" or inst not in self.program.varying:
                found = dict.fromkeys(source for operand in read_by(inst) for source in self.sources.get(operand, ()))
                self.sources[inst] = (inst,) if inst.opcode == "parameter" else tuple(found)
            elif inst.opcode == "get-tuple-element" and inst.operands[0] in self.phase:
                self._stay_with(inst, inst.operands[0])
            else:
                goes_back = self._goes_back(inst)
                if has_begun and not goes_back:
                    self.preparing.add(inst)
                has_begun |= goes_back and inst in self.behind_forward
                self.phase[inst] = "backward" if has_begun or goes_back else "forward"

    def _goes_back(self, inst: Instruction) -> bool:
        """Is it part of the backward pass?  Of what reads nothing of a forward pass that is true if no forward op reads
        it, whatever its name and place: a mask may be scaled for the loss's gradient first of all."""
        before = list(read_by(inst))
        if any(self.phase.get(operand) == "forward" or operand in self.behind_forward for operand in before):
            self.behind_forward.add(inst)
        if any(map(self._is_gradient, before)):
            return True
        return is_backward(inst) and (inst in self.behind_forward or inst not in self.read_forward)

    @cached_property
    def read_forward(self) -> frozenset[Instruction]:
        """What ops without a backward op's name are made of."""
        found: set[Instruction] = set()
        for inst in reversed(self.entry.instructions):
            is_once = inst in self.program.after or inst in self.program.opening or inst.is_root
            if inst in found or not (is_once or is_backward(inst)):
                found.update(inst.operands)
        return frozenset(found)

    def _stay_with(self, element: Instruction, packed: Instruction) -> None:
        """Arrays travel, tuples do not."""
        self.phase[element] = self.phase[packed]
        if packed in self.preparing:
            self.preparing.add(element)

    # Forward

    def _place_forward(self) -> None:
        forward = list(self._of("forward"))
        starts = self._starts(forward)
        for number, inst in enumerate(forward):
            is_element = inst.opcode == "get-tuple-element"
            self.stage[inst] = self._stage_of_last(inst) if is_element else bisect_left(starts, number + 1)
            self.read_at[inst].add(self.stage[inst])
            for operand in read_by(inst):
                for value in self.sources.get(operand, (operand,)):
                    self.read_at[value].add(self.stage[inst])

    def _stage_of_last(self, inst: Instruction) -> int:
        """Where the last of what it reads is made."""
        return max((self.stage[operand] for operand in read_by(inst) if operand in self.stage), default=0)

    def _starts(self, forward: Sequence[Instruction]) -> list[int]:
        """Where, in the order of forward ops, each stage but the first begins."""
        if len(forward) < self.count:
            raise ScheduleError(
                f"{len(forward)} ops of a microbatch's forward pass for {self.count} stages", remedy="take fewer stages"
            )
        seconds = {row.instruction: row.time_s for row in cost(self.program.module, self.machine).rows}
        before = list(accumulate((seconds.get(inst, 0.0) for inst in forward), initial=0.0))
        crossing = _crossing_bytes(forward)
        starts: list[int] = []
        for number in range(1, self.count):
            first = (starts[-1] if starts else 0) + 1
            last = len(forward) - (self.count - number)
            ideal, slack = before[-1] * number / self.count, before[-1] / self.count * _SLACK
            near = [n for n in range(first, last + 1) if abs(before[n] - ideal) <= slack]
            near = near or [min(range(first, last + 1), key=lambda n: abs(before[n] - ideal))]
            starts.append(min(near, key=lambda n: (crossing[n], abs(before[n] - ideal))))
        return starts

    # Backward

    def _backward_stage(self, inst: Instruction) -> int:
        """Gradients come from behind: an op goes down to the stage where the rest of what it reads lies."""
        if inst in self.preparing or inst.opcode == "get-tuple-element":
            return self._stage_of_last(inst)
        gradients = [self.stage[o] for o in read_by(inst) if self._is_gradient(o)]
        others = [self.read_at[value] for o in read_by(inst) for value in self._lasting(o)]
        if not gradients:
            return max((max(stages) for stages in others if stages), default=self.count - 1)
        found = min(gradients)
        for stages in others:
            if stages:
                found = min(found, max((stage for stage in stages if stage <= found), default=min(stages)))
        return found

    def _is_gradient(self, inst: Instruction) -> bool:
        return self.phase.get(inst) == "backward" and inst not in self.preparing

    def _lasting(self, operand: Instruction) -> tuple[Instruction, ...]:
        """Forward values and parameters of which an operand is made."""
        return () if self._is_gradient(operand) else self.sources.get(operand, (operand,))

    # What runs once

    def _stage_behind(self, inst: Instruction) -> int:
        """Where the largest parameter lies that it updates, if it reads one; else where the largest value is."""
        updated = [
            source for operand in read_by(inst) for source in self.sources.get(operand, ()) if self.read_at[source]
        ]
        if updated:
            return min(self.read_at[max(updated, key=lambda parameter: parameter.shape.byte_size)])
        known = [operand for operand in read_by(inst) if operand in self.stage]
        return self.stage[max(known, key=lambda operand: operand.shape.byte_size)]

    def _homes(self) -> dict[Instruction, int]:
        readers: defaultdict[Instruction, list[int]] = defaultdict(list)
        for inst, stage in self.stage.items():
            for operand in read_by(inst):
                for source in self.sources.get(operand, ()):
                    readers[source].append(stage)
        lying = (*self.entry.parameters, *self.program.opening)
        return {p: min(self.read_at.get(p) or readers.get(p) or [0]) for p in lying}


def _crossing_bytes(forward: Sequence[Instruction]) -> list[int]:
    """Bytes that forward ops from the n-th on read of those before it."""
    place = {inst: number for number, inst in enumerate(forward)}
    changes = [0] * (len(forward) + 1)
    for inst, number in place.items():
        last = max((place[user] for user in inst.users if user in place), default=number)
        changes[number + 1] += inst.shape.byte_size
        changes[last + 1 if last > number else number + 1] -= inst.shape.byte_size
    return list(accumulate(changes))
