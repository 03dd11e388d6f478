"""What the walk wrote, and for which instruction: the pieces that a per-device program consists of.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hlosharding.ir import ComputationBuilder, Instruction
from hlosharding.partitioner.choice import OpPlan
from hlosharding.partitioner.repeated_layers.folding import LayersDiffer
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Program


@dataclass(slots=True)
class Written:
    """The entry of a per-device program, not closed yet."""

    program: Program
    entry: ComputationBuilder
    boundary: dict[Instruction, HloSharding] = field(default_factory=dict[Instruction, HloSharding])
    """The shardings of parameters and root."""
    steps: list[tuple[Instruction, int]] = field(default_factory=list[tuple[Instruction, int]])
    """The instructions that were lowered in the order of the walk, and how many local ones stood there after each."""
    plans: dict[Instruction, OpPlan] = field(default_factory=dict[Instruction, OpPlan])
    """How they were partitioned."""
    warned: set[Instruction] = field(default_factory=set[Instruction])
    """Those with which a warning came."""
    warnings: int = 0

    def note(self, inst: Instruction) -> None:
        """An instruction was lowered."""
        self.steps.append((inst, len(self.entry.computation.instructions)))
        if len(self.program.warnings) > self.warnings:
            self.warned.add(inst)
            self.warnings = len(self.program.warnings)

    def pieces(self) -> Iterator[tuple[Instruction, list[Instruction]]]:
        """What was written for each instruction, root aside."""
        start, written = 0, self.entry.computation.instructions
        for inst, end in self.steps:
            yield inst, written[start:end]
            start = end

    def of_results(self) -> list[tuple[int, Instruction]]:
        """What was written for the root, in order, each with the number of the result that it is for."""
        written = self.entry.computation.instructions
        *own, root = written[self.steps[-1][1] :] or written[-1:]
        if root is not self.entry.computation.root or root.opcode != "tuple":
            raise LayersDiffer
        number = dict[Instruction, int]()
        mine = set(own)
        for result, operand in enumerate(root.operands):
            waiting = [operand]
            while waiting:
                one = waiting.pop()
                if one in mine and one not in number:
                    number[one] = result
                    waiting.extend(one.operands)
        if len(number) < len(own):
            raise LayersDiffer
        return [(number[one], one) for one in own]
