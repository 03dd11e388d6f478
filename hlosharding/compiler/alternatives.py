"""Whole programs that are tried and compared: products as loops or not.  Tables of shardings are compared unbuilt.

Floor: compiler.  One partition is one walk of the partitioner; all choice between walks is made here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cached_property

from hlosharding.cost import CostReport, Machine, cost, simulate
from hlosharding.ir import Module
from hlosharding.partitioner import (
    Decisions,
    Folded,
    LayersDiffer,
    LocalProgram,
    PartitionOptions,
    Prices,
    best_table,
    check_devices,
    folded,
    has_manual_groups,
    in_plain_forms,
    partition_folded,
    partition_module,
    sharding_tables,
)

_MORE, _LESS, _AS_MANY = 1.05, 0.95, 0.01


class Alternative:
    """A partitioned program, with what it costs once that is asked."""

    def __init__(self, local: LocalProgram, machine: Machine) -> None:
        self.local = local
        self.machine = machine

    @cached_property
    def cost(self) -> CostReport:
        """FLOPs, bytes and peak memory of a device."""
        return cost(self.local.module, machine=self.machine)

    @cached_property
    def seconds(self) -> float:
        """Simulated time: communication that waits for nothing hides behind computation."""
        return simulate(self.local.module, self.machine).time_s


def is_better(new: Alternative, old: Alternative) -> bool:
    """Does `new` receive clearly fewer bytes in no more time, or as many in less?  At no price in work and memory."""
    if new.cost.flops > _MORE * old.cost.flops or new.cost.peak_memory_bytes > _MORE * old.cost.peak_memory_bytes:
        return False
    received, before = new.cost.comm_bytes, old.cost.comm_bytes
    if received < _LESS * before:
        return new.seconds <= old.seconds
    return abs(received - before) <= _AS_MANY * before and new.seconds < old.seconds


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
        with suppress(LayersDiffer):
            return _best(_alternatives(part.module, num_partitions, machine, given, names, part))
    return _best(_alternatives(module, num_partitions, machine, given, names))


def _best(found: Iterator[Alternative]) -> LocalProgram:
    best = next(found)
    for other in found:
        best = other if is_better(other, best) else best
    return best.local


def _alternatives(
    module: Module,
    num_partitions: int,
    machine: Machine,
    options: PartitionOptions,
    annotated: frozenset[str],
    part: Folded | None = None,
) -> Iterator[Alternative]:
    """The program; where single products were found worth a loop, that without such loops, too.

    `part`: `module` is a part of it, whose layers are decided for all.
    """
    found = sharding_tables(module, annotated, num_partitions)
    tables, in_groups = [next(found)] if options.only_propagated else list(found), has_manual_groups(module)
    table = None
    for overlap in ("auto", "off") if options.overlap == "auto" else (options.overlap,):
        decisions = Decisions(
            Prices(machine, options.objective),
            overlap=overlap,
            mesh=module.mesh.assignment if module.mesh is not None else None,
            has_manual_groups=in_groups,
            annotated=annotated,
        )
        if table is None:
            table = tables[0] if options.only_propagated else best_table(module, tables, decisions, num_partitions)
        if part is not None:
            local = partition_folded(part, table, decisions, num_partitions=num_partitions, dump=options.dump_passes)
        else:
            local = partition_module(module, table, decisions, num_partitions=num_partitions, dump=options.dump_passes)
        yield Alternative(local, machine)
        if not any(decisions.faster_collective_matmuls.values()):
            return
