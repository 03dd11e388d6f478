"""A partitioned program as a report sees it: figures by the op of the whole program, the collectives numbered.

Floor: report.  Computed once, read by all sections.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from hlosharding.compiler import Partitioned
from hlosharding.cost import Simulation, Subtotal, simulate_priced
from hlosharding.ir import Computation, Instruction, Module, callers
from hlosharding.propagation import LostOffer
from hlosharding.sharding import HloSharding, MeshInfo
from hlosharding.spmd import Collective


@dataclass(frozen=True, slots=True)
class Numbered:
    """A collective with its number among the program's, and its predicted seconds in one run."""

    number: int
    collective: Collective
    seconds: float


@dataclass(frozen=True)
class ReportedProgram:
    """What a report is about.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> about = ReportedProgram(hs.partition(hs.load(text)))
    >>> [about.figures[op].flops for op in about.whole.instructions if op in about.figures]
    [8.0]
    """

    partitioned: Partitioned

    @cached_property
    def simulation(self) -> Simulation:
        """One step on the machine whose prices decided."""
        made = self.partitioned
        return simulate_priced(made.module, made.cost, made.whole_program)

    @cached_property
    def whole(self) -> Module:
        """The program before it was split, with the shardings found; of one that XLA split, that one."""
        found = self.partitioned.propagation
        return found.module if found is not None and self.is_explained else self.partitioned.module

    @property
    def mesh(self) -> MeshInfo | None:
        """Whose axis names shardings take."""
        return self.whole.mesh

    @property
    def is_explained(self) -> bool:
        """Was it split here, so that shardings and their causes are known?"""
        return self.partitioned.propagation is not None and not self.partitioned.was_partitioned

    @cached_property
    def _chosen_by_name(self) -> dict[str, HloSharding]:
        return {one.instruction.name: one.chosen for one in self.partitioned.sharding_overrides}

    def sharding(self, inst: Instruction) -> HloSharding | None:
        """How a value of the whole program lies in the end."""
        return self._chosen_by_name.get(inst.name) or self.whole.sharding(inst)

    @cached_property
    def collectives(self) -> list[Numbered]:
        """In program order."""
        seconds = {row.instruction.name: row.time_s for row in self.partitioned.cost.rows}
        found = enumerate(self.partitioned.collectives)
        return [Numbered(number, one, seconds.get(one.name, 0.0)) for number, one in found]

    @cached_property
    def collectives_of(self) -> dict[Instruction, list[Numbered]]:
        """By the op of the whole program that needed them."""
        found: dict[Instruction, list[Numbered]] = defaultdict(list)
        for one in self.collectives:
            name = one.collective.needed_by if self.is_explained else one.collective.name
            if (op := self.whole.find(name)) is not None:
                found[op].append(one)
        return dict(found)

    @cached_property
    def conflicts(self) -> tuple[LostOffer, ...]:
        """Where neighbours would have a value lie otherwise."""
        found = self.partitioned.propagation
        return found.conflicts if found is not None and self.is_explained else ()

    def moved_between(self, offers: Iterable[LostOffer]) -> list[Numbered]:
        """The collectives that the ops on both sides of such offers needed."""
        names = dict.fromkeys(link.name for lost in offers for link in (lost.winner, lost.loser))
        ops = filter(None, map(self.whole.find, names))
        return [one for op in ops for one in self.collectives_of.get(op, ())]

    @cached_property
    def _sites(self) -> dict[Computation, list[Instruction]]:
        return callers(self.whole)

    def loops_of(self, op: Instruction) -> list[Instruction]:
        """The loops and calls inside which an op stands, the innermost first."""
        found: list[Instruction] = []
        while sites := self._sites.get(op.computation):
            op = sites[0]
            found.append(op)
        return found

    @cached_property
    def figures(self) -> dict[Instruction, Subtotal]:
        """What the local ops that were made for each op of the whole program cost, its collectives included."""
        needed_by = {one.name: one.needed_by for one in self.partitioned.collectives} if self.is_explained else {}
        found: dict[Instruction, Subtotal] = defaultdict(Subtotal)
        for row in self.partitioned.cost.rows:
            # Local ops bear the name of the op that they are; a collective is counted to the op that needed it.
            made_for = needed_by.get(row.instruction.name) or row.instruction.name
            if (op := self.whole.find(made_for)) is not None:
                found[op] += row
        return dict(found)

    def share_of_time(self, seconds: float) -> float:
        """Of the whole program's, as priced."""
        whole_s = self.partitioned.cost.time_s
        return seconds / whole_s if whole_s else 0.0

    def total(self, ops: Iterable[Instruction]) -> Subtotal:
        """Of several ops of the whole program."""
        return add_subtotals(self.figures[op] for op in ops if op in self.figures)


def add_subtotals(parts: Iterable[Subtotal]) -> Subtotal:
    """The sums of several; of none, records say 0, and not 0.0."""
    return sum(parts, Subtotal(0, 0, 0, 0, 0))
