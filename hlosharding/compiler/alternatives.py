"""Whole programs that are tried and compared: with each table of shardings, with values moved between ops, with loops.

Tables are propagation's own and others; loops of permutes stand for products, where that is asked for.
Floor: compiler.  One partition is one walk of the partitioner; all choice between walks is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from hlosharding.cost import CostReport, Machine, step_seconds
from hlosharding.ir import Module
from hlosharding.partitioner import (
    SMALL,
    Cost,
    Decisions,
    Folded,
    LayersDiffer,
    LocalProgram,
    PartitionOptions,
    Prices,
    ProgramShardings,
    ShardingTable,
    check_devices,
    folded,
    has_manual_groups,
    improved_table,
    in_plain_forms,
    other_tables,
    partition_module,
    propagated_table,
    unrelaxed_table,
)
from hlosharding.reshard import MARGIN, MORE_WORK, Figures, best, weigh

_MORE_MEMORY = 1.1
"""Of what propagation's own program holds: a better one may hold so much, as the bar against XLA's peak says."""

_FAR = 1.5
"""Of what takes so much longer with a few layers, no layer more is looked at: of 20 parts of GPT-2 and Llama with all
layers one took 0.76 of what its part said beside the other's, and those that took twice as long took twice as long.
What is nearer may be better, too, once its values between ops lie otherwise: of 191 chains of ops two were, which had
moved 1.22 and 1.28 times the bytes, and moved 0.95 and 0.76 then."""


@dataclass(eq=False)
class Alternative:
    """A partitioned program, with what it costs once that is asked."""

    local: LocalProgram
    table: ShardingTable
    """That it was made with."""
    decisions: Decisions
    larger: Iterable[tuple[int, Alternative]] = ()
    """Of a part: of each stack how many layers are left out, and the same program with one layer more.  They are
    written once they are asked for."""

    @property
    def machine(self) -> Machine:
        """Whose prices decide."""
        return self.decisions.prices.machine

    @property
    def cost(self) -> CostReport:
        """FLOPs, bytes and peak memory of a device; of a part without what is left out."""
        return self.local.cost(self.machine)

    @cached_property
    def own_seconds(self) -> float:
        """Of a step; communication that waits for nothing hides behind computation; of a part as `cost`."""
        return step_seconds(self.local.module, self.cost)

    def own_weight(self, objective: str) -> float:
        """What is minimised, of a part by itself."""
        return weigh(objective, self.cost.comm_bytes, self.own_seconds)

    @cached_property
    def _larger(self) -> list[tuple[int, Alternative]]:
        return list(self.larger)

    def _of_all_layers(self, figure: Callable[[Alternative], float]) -> float:
        """A figure of the whole program: each layer that is left out adds what one layer more adds to a part."""
        own = figure(self)
        return own + sum(count * (figure(one) - own) for count, one in self._larger)

    def may_be_better(self, other: Alternative) -> bool:
        """With all layers, as far as parts tell by themselves?"""
        mine, others = ((one.cost.comm_bytes, one.own_seconds) for one in (self, other))
        if mine == others and self.cost.peak_memory_bytes == other.cost.peak_memory_bytes:
            return False
        objective = other.decisions.prices.objective
        return self.own_weight(objective) <= _FAR * other.own_weight(objective) or not other.is_held

    @cached_property
    def seconds(self) -> float:
        """Of a step of the whole program."""
        return self._of_all_layers(lambda one: one.own_seconds)

    @cached_property
    def comm_bytes(self) -> float:
        """Received by a device."""
        return self._of_all_layers(lambda one: one.cost.comm_bytes)

    @cached_property
    def flops(self) -> float:
        """Of a device."""
        return self._of_all_layers(lambda one: one.cost.flops)

    @cached_property
    def peak_bytes(self) -> float:
        """Of a device's memory."""
        return self._of_all_layers(lambda one: one.cost.peak_memory_bytes)

    @property
    def figures(self) -> Figures:
        """What it is compared by, memory apart."""
        calls = self._of_all_layers(lambda one: sum(each.executions for each in one.cost.collectives))
        return Figures(self.seconds, self.comm_bytes, round(calls))

    @cached_property
    def most_bytes(self) -> float:
        """Of all values together: more than the program ever holds."""
        return self._of_all_layers(lambda one: sum(inst.shape.byte_size for inst in one.local.module.instructions))

    @property
    def is_held(self) -> bool:
        """Has the machine so much memory?"""
        most = self.machine.memory_bytes
        return self.most_bytes <= most or self._holds_at_most(most)

    def _holds_at_most(self, nbytes: float) -> bool:
        return self.peak_bytes <= nbytes if self._larger else self.cost.memory.is_at_most(nbytes)

    def fits_beside(self, own: Sequence[Alternative]) -> bool:
        """Does it hold about as much as one of propagation's `own`, does the machine hold it, and does it save bytes by
        no more work?"""
        is_work_priced = self.decisions.prices.objective == "time"
        if not is_work_priced and self.flops > MORE_WORK * max(one.flops for one in own):
            return False
        return self.is_held and any(self is one or self._holds_at_most(_MORE_MEMORY * one.peak_bytes) for one in own)


def best_of(found: Sequence[Alternative], num_own: int = 1) -> Alternative:
    """The best of those that fit beside the first, which are propagation's own; where none does, the leanest."""
    first, objective = found[0], found[0].decisions.prices.objective

    def weight(one: Alternative) -> float:
        return weigh(objective, one.comm_bytes, one.seconds)

    # What is worse need not be walked for its memory: it is not taken.  Nor what is worse than the best that fits.
    near = [one for one in found[1:] if one.may_be_better(first)]
    worth = [first, *(one for one in near if weight(one) <= (1 + MARGIN) * weight(first) or not first.is_held)]
    if len(worth) == 1:
        return first
    figures = [one.figures for one in worth]
    if len({each[1:] for each in figures}) < len(figures):  # then peaks may decide
        figures = [f._replace(peak_bytes=round(one.peak_bytes)) for one, f in zip(worth, figures, strict=True)]
    weights, fitting = [weight(one) for one in worth], list[int]()
    for number in sorted(range(len(worth)), key=weights.__getitem__):
        if fitting and weights[number] > (1 + MARGIN) * weights[fitting[0]]:
            break
        if worth[number].fits_beside(found[:num_own]):
            fitting.append(number)
    if not fitting:
        return min(worth, key=lambda one: one.peak_bytes)
    # In the order of the programs again: of equal ones `best` takes the first, which is propagation's own.
    fitting.sort()
    return worth[fitting[best(objective, [figures[number] for number in fitting])]]


def _small_moves(one: Alternative) -> float:
    """Seconds in which parts of small values move, rather than sums of such are made."""
    moves = [row for row in one.cost.rows if row.comm_bytes and row.instruction.opcode != "all-reduce"]
    return sum(row.time_s for row in moves if row.instruction.shape.byte_size <= SMALL)


def best_program(
    module: Module,
    *,
    num_partitions: int,
    machine: Machine,
    options: PartitionOptions | None = None,
    annotated: Collection[str] = (),
) -> LocalProgram:
    """`module` for `num_partitions` devices, following `module.shardings`; of several alternatives the best.

    Instructions without a sharding may take any.  `annotated` names those that the user annotated: they keep theirs
    even where another would do.  Raises PartitionError for shardings of another device count.
    """
    check_devices(module, num_partitions)
    module = in_plain_forms(module)
    machine = machine.with_devices(num_partitions)
    names, given = frozenset(annotated), options or PartitionOptions()
    part = None if has_manual_groups(module) else folded(module, names)
    if part is not None:
        # Twelve layers of GPT-2 are partitioned in as much time so, 48 in half of it, and the program is the same.
        with suppress(LayersDiffer):
            return _Choice(part.module, num_partitions, machine, given, names, part).program()
    return _Choice(module, num_partitions, machine, given, names).program()


@dataclass(frozen=True)
class _Choice:
    """One program, and how it is to be partitioned."""

    module: Module
    num_partitions: int
    machine: Machine
    options: PartitionOptions
    annotated: frozenset[str]
    part: Folded | None = None
    """`module` is a part of it, whose layers are decided for all."""

    def program(self) -> LocalProgram:
        """The best; where single products were found worth a loop, the one without such loops is tried, too."""
        first, chosen = self._tried(self._decisions(self.options.overlap))
        # A product that is faster as a loop need not make the program faster: its wait may be hidden already.
        if self.options.overlap == "auto" and any(chosen.decisions.faster_collective_matmuls.values()):
            chosen = best_of([chosen, self._built(chosen.table, self._decisions("off"))])
        return (chosen if self.part is None else self._with_all_layers(self.part, first, chosen)).local

    def _tried(self, decisions: Decisions) -> tuple[Alternative, Alternative]:
        """The first, and the best over all tables, then, with other shardings for values between its ops where those
        save something.

        Propagation's own comes first: no other is taken that is not better by the whole program.
        """
        own = propagated_table(self.module, self.annotated, self.num_partitions, decisions.prices)
        first = self._built(own, decisions)
        if self.options.only_propagated:
            return first, first
        cost = Cost(first.cost.comm_bytes, first.own_seconds)
        program = ProgramShardings(
            self.module, own.shardings, self.annotated, self.num_partitions, decisions.prices, cost, _small_moves(first)
        )
        owns = [first, *self._unrelaxed(program, first)]
        found = [*owns, *[self._built(table, decisions) for table in other_tables(program, own)]]
        chosen = best_of(found, len(owns))
        better = [self._built(table, decisions) for table in self._improved(found, chosen, owns)]
        return first, best_of([*found, *better], len(owns)) if better else chosen

    def _improved(
        self, found: Sequence[Alternative], chosen: Alternative, owns: Sequence[Alternative]
    ) -> Iterator[ShardingTable]:
        """The best, and those that are not much worse, with other shardings for values between ops where those save
        something: in the best there may be less to save."""
        best = chosen.own_weight(self.options.objective)
        for one in found:
            is_near = (1 + MARGIN) * best < one.own_weight(self.options.objective) <= _FAR * best
            if one is chosen or (is_near and one.fits_beside(owns)):
                table = improved_table(self.module, one.table, one.local.found, one.decisions)
                if table is not one.table:
                    yield table

    def _unrelaxed(self, program: ProgramShardings, first: Alternative) -> Iterator[Alternative]:
        """Propagation's own with nothing relaxed, where that takes fewer collectives.

        Of 81 programs of strangers seven are faster so: two towers took 0.58 of the time, a mobile net 0.72, messages
        between nodes and Shampoo 0.78, Gram and Schmidt's method 0.83.  For three others it is tried in vain.
        """
        table = unrelaxed_table(program, first.table, first.local.found)
        if table is not first.table:
            made = self._built(table, first.decisions)
            if made.figures.collectives < first.figures.collectives:
                yield made

    def _with_all_layers(self, part: Folded, first: Alternative, chosen: Alternative) -> Alternative:
        """What was chosen for a part of the layers, written for all: these may hold more than the machine has."""
        made = self._written(part.source, part.table(chosen.table), chosen.decisions)
        if chosen is first or made.is_held:
            return made
        return best_of([self._written(part.source, part.table(first.table), first.decisions), made])

    def _decisions(self, overlap: str) -> Decisions:
        made = Decisions(
            Prices(self.machine, self.options.objective),
            overlap=overlap,
            only_propagated=self.options.only_propagated,
            mesh=self.module.mesh.assignment if self.module.mesh is not None else None,
            has_manual_groups=has_manual_groups(self.module),
            annotated=self.annotated,
        )
        return made if made.has_manual_groups else made.remembered()

    def _built(self, table: ShardingTable, decisions: Decisions) -> Alternative:
        """One walk.  What was decided of equal ops holds for it; how loops carry their values depends on the table."""
        larger = () if self.part is None else self._larger(self.part, self.part.table(table), decisions)
        return replace(self._written(self.module, table, replace(decisions, loop_forms={})), larger=larger)

    def _larger(self, part: Folded, whole: ShardingTable, decisions: Decisions) -> Iterator[tuple[int, Alternative]]:
        """The program with one layer more of each stack.

        As in parts memory is that of embeddings and logits, and so is much of the time, 32 listed layers of a Llama
        took 1.33 times as long when parts were compared by themselves, and moved three times the bytes.
        """
        for count, larger in part.larger:
            yield count, self._written(larger.module, larger.part_of(whole), replace(decisions, loop_forms={}))

    def _written(self, module: Module, table: ShardingTable, decisions: Decisions) -> Alternative:
        local = partition_module(
            module, table, decisions, num_partitions=self.num_partitions, dump=self.options.dump_passes
        )
        return Alternative(local, table, decisions)
