"""The programs of a pipeline's passes: the instructions of one pass of one stage, as a module with names for what it
reads and makes.

Floor: schedule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from hlosharding.ir import Instruction, Module, subprogram
from hlosharding.schedule.cutting.microbatched import MADE_WHERE_READ, Microbatched, find_reached, reads_of
from hlosharding.schedule.cutting.openings import opening_levels
from hlosharding.schedule.cutting.saved_values import choose_saved_values
from hlosharding.schedule.cutting.stages import Phase, Placement


@dataclass(frozen=True, slots=True)
class Part:
    """One pass of one stage, or one stretch of what a stage does once."""

    phase: Phase
    stage: int
    level: int
    """Of what runs once: behind how many sends it comes."""
    module: Module
    reads: tuple[Instruction, ...]
    """Of the microbatch's program; so are `makes`."""
    makes: tuple[Instruction, ...]
    sums: tuple[int, ...]
    """Numbers of `makes` that are terms of a sum over the microbatches."""


def cut_parts(program: Microbatched, placement: Placement) -> list[Part]:
    """All of them, in an order in which they can run."""
    return list(_Parting(program, placement).cut_all())


Key = tuple[Phase, int, int]
_BACKWARD: tuple[Phase, ...] = ("backward", "weights")


class _Parting:
    def __init__(self, program: Microbatched, placement: Placement) -> None:
        self.program, self.placement = program, placement
        self.entry = program.module.entry
        self.terms = frozenset(inst.operands[0] for inst in program.sums)

    def cut_all(self) -> Iterator[Part]:
        for key, members in sorted((self.ahead | self.members).items(), key=lambda item: self._rank(item[0])):
            part = self._part(key, members)
            if part.makes:
                yield part

    @staticmethod
    def _rank(key: Key) -> tuple[int, int, int]:
        phase, stage, level = key
        rank = ("opening", "forward", "backward", "weights", "after").index(phase)
        # Gradients go from the last stage down.  What runs once goes level by level: each reads what those before it
        # send.
        return rank, level, -stage if phase == "backward" else stage

    @cached_property
    def keys(self) -> Mapping[Instruction, Key]:
        """The part of each instruction."""
        found: dict[Instruction, Key] = {}
        phase, stage = self.placement.phase, self.placement.stage
        for inst in self.entry.instructions:
            if inst in phase and inst not in self.program.sums and self._travels(inst):
                level = self._level(inst, found) if phase[inst] == "after" else 0
                found[inst] = (phase[inst], stage[inst], level)
        for inst in self.entry.root.operands:
            if inst not in found and inst.opcode != "parameter" and inst not in self.program.sums:
                found[inst] = ("after", self._home(inst), 0)
        return found

    @staticmethod
    def _travels(inst: Instruction) -> bool:
        """Can another part be given it?  What is not given is computed by who reads it."""
        return inst.opcode not in MADE_WHERE_READ or any(user.is_entry_root for user in inst.users)

    def _level(self, inst: Instruction, found: Mapping[Instruction, Key]) -> int:
        """One more than what it reads of another stage, if that runs once, too."""
        stage = self.placement.stage[inst]
        before = [found[o] for o in reads_of(inst) if o in found and found[o][0] == "after"]
        return max((level + (at != stage) for _, at, level in before), default=0)

    def _home(self, inst: Instruction) -> int:
        """Of a result that needs no microbatch: where the parameters lie of which it is made."""
        while inst.operands:
            inst = max(inst.operands, key=lambda operand: operand.shape.byte_size)
        return self.placement.home.get(inst, next(iter(self.placement.home.values()), 0))

    @cached_property
    def ahead(self) -> dict[Key, list[Instruction]]:
        """The terms of early sums, which are made in parts of their own."""
        found: dict[Key, list[Instruction]] = {}
        for inst, level in opening_levels(self.program).items():
            found.setdefault(("opening", self.placement.home[inst], level), []).extend(inst.operands)
        return found

    @cached_property
    def members(self) -> dict[Key, list[Instruction]]:
        found: defaultdict[Key, list[Instruction]] = defaultdict(list)
        for inst in self.entry.instructions:
            if inst in self.keys:
                found[self.keys[inst]].append(inst)
        return found

    def _part(self, key: Key, members: list[Instruction]) -> Part:
        inside, reads = self._with_shared(key, members)
        makes = tuple(inst for inst in members if key[0] == "opening" or self._leaves(inst, key))
        sums = tuple(number for number, inst in enumerate(makes) if inst in self.terms)
        name = f"{key[0]}_{key[1]}" + (f"_{key[2]}" if key[2] else "")
        ordered = [inst for inst in self.entry.instructions if inst in inside]
        module = subprogram(self.program.module, name, ordered, reads, makes)
        return Part(*key, module, tuple(map(self.program.without_sum, reads)), makes, sums)

    def _with_shared(self, key: Key, members: Iterable[Instruction]) -> tuple[set[Instruction], list[Instruction]]:
        """What is computed in the part, what all microbatches share and what was not kept included; what it reads."""
        own = set(members)
        reached = find_reached(own, lambda inst: () if self._is_read(inst, own, key) else inst.operands)
        reads = {inst for inst in reached if self._is_read(inst, own, key)}
        inside = reached - reads
        if not reads:  # a program without operands would lie nowhere
            shared = [p for p in self.entry.parameters if p not in self.program.varying]
            reads.update([p for p in shared if self.placement.home[p] == key[1]][:1])
        order = {inst: number for number, inst in enumerate(self.entry.instructions)}
        return inside, sorted(reads, key=lambda read: (-self._bytes_to_sum(read, key), order[read]))

    def _is_read(self, inst: Instruction, own: Collection[Instruction], key: Key) -> bool:
        """Is it given to a part that has these ops of its own?  What is not, it computes."""
        is_made = self._is_given(inst) and not self._is_recomputed(inst, key)
        return inst not in own and (is_made or inst in self.program.sums or inst.opcode == "parameter")

    def _bytes_to_sum(self, read: Instruction, key: Key) -> int:
        """Behind the last microbatch large sums come first: what is updated with them takes longest, and other sums
        hide behind it."""
        return read.shape.byte_size if key[0] == "after" and read in self.program.sums else 0

    def _is_given(self, inst: Instruction) -> bool:
        """Does a part make it for others?  What is a result and the same for all microbatches is made for the caller
        alone."""
        return inst in self.keys and inst in self.placement.phase

    def _is_recomputed(self, inst: Instruction, key: Key) -> bool:
        """Is a forward value computed again: ahead of all passes, or in the backward pass of its stage?"""
        phase, stage, _ = key
        return phase == "opening" or (
            phase in _BACKWARD and self.keys[inst] == ("forward", stage, 0) and inst not in self.saved[stage]
        )

    @cached_property
    def saved(self) -> Mapping[int, frozenset[Instruction]]:
        """Of what each stage's forward pass makes, what it keeps for the backward pass."""
        forward = frozenset(inst for inst, (phase, _, _) in self.keys.items() if phase == "forward")
        found: dict[int, frozenset[Instruction]] = {}
        for stage in {stage for phase, stage, _ in self.members if phase in _BACKWARD}:
            own = frozenset(self.members.get(("forward", stage, 0), ()))
            readers = (inst for phase in _BACKWARD for inst in self.members.get((phase, stage, 0), ()))
            found[stage] = choose_saved_values(own, forward, (value for inst in readers for value in reads_of(inst)))
        return found

    def _leaves(self, inst: Instruction, key: Key) -> bool:
        """Does another part read it, or the caller?"""
        phase, stage, _ = key
        # What the stage's own backward pass reads and is not kept it computes again.
        inside = {key, *((each, stage, 0) for each in _BACKWARD if phase == "forward")}
        if phase == "forward" and inst in self.saved.get(stage, ()):
            return True
        waiting = list(inst.users)
        while waiting:
            user = waiting.pop()
            if user in self.program.ahead:
                continue
            if not user.is_root and not self._travels(user):
                waiting += user.users
            elif self.keys.get(user) not in inside:
                return True
        return False
