"""The parts of a pipeline, partitioned for the submesh of their stage.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hlosharding.compiler import Partitioned, partition
from hlosharding.cost import Machine
from hlosharding.frontends import constrain
from hlosharding.ir import COLLECTIVES, SAME_ELEMENTS, Instruction, Sameness
from hlosharding.partitioner import PartitionOptions
from hlosharding.propagation import propagate
from hlosharding.schedule.cutting.kept_splits import SplitFlow, keep_split
from hlosharding.schedule.cutting.pieces import Part
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.sharding import HloSharding, MeshInfo

Terms = Mapping[int, HloSharding]
"""Of sums that may be left in terms, one a device, by number how these lie."""


class PartShardings(NamedTuple):
    """How the values of a part lie."""

    reads: tuple[HloSharding, ...]
    inside: tuple[tuple[int, HloSharding], ...]
    """Of some of its instructions, by place."""
    makes: tuple[HloSharding, ...]
    mesh: MeshInfo
    flows: tuple[SplitFlow, ...]
    """Of the whole program, where they enter the part."""
    pieces: tuple[tuple[int, HloSharding], ...] = ()
    """Into which terms that it reads are reduced, by number."""


@dataclass(frozen=True)
class Submesh:
    """Where a stage runs, and how its programs are partitioned for it.  Equal ones may share programs."""

    machine: Machine
    """Of these devices alone."""
    options: PartitionOptions | None
    devices: tuple[int, ...] = field(compare=False)

    def partition_part(self, part: Part, shardings: PartShardings) -> Partitioned:
        """The program of a part whose values lie so."""
        module = part.module.clone()
        module.num_partitions = self.machine.num_devices
        instructions = module.instructions
        for number, sharding in shardings.inside:
            module.shardings[instructions[number].id] = sharding
        parameters = module.entry.parameters
        for parameter, sharding in zip(parameters, shardings.reads, strict=True):
            module.shardings[parameter.id] = sharding
        module.shardings[module.entry.root.id] = HloSharding.tuple(shardings.makes)
        constrain(module, {parameters[n]: (lies, ()) for n, lies in shardings.pieces})
        keep_split(module, shardings.mesh, shardings.flows)
        found = propagate(module).in_place()
        return partition(found, num_partitions=self.machine.num_devices, machine=self.machine, options=self.options)


class StagePrograms:
    """Of several parts that do the same, one program; of the last ones that were asked for."""

    def __init__(self) -> None:
        self._sameness = Sameness()
        self._programs: dict[tuple[Any, ...], StageProgram] = {}

    def of(self, part: Part, shardings: PartShardings, terms: Terms, submesh: Submesh) -> StageProgram:
        """The program of a part."""
        same = self._sameness.computation(part.module.entry)
        key = same, shardings, tuple(terms.items()), part.sums, submesh
        if key not in self._programs:
            if len(self._programs) >= _MOST_KEPT:
                self._programs.pop(next(iter(self._programs)))
            found = _partition_cheapest(part, shardings, terms, submesh)
            made = self._programs[key] = StageProgram(part.module.name, found.program, sums=part.sums)
            for machine, report in found.local.priced.items():  # which holds much: it is asked once, and let go
                made.know_cost(machine, report)
        return self._programs[key]


_MOST_KEPT = 256
"""A plan of dozens of stages has some ten different ones; each is about half a megabyte.  Of 32 plans that need 72 none
is partitioned twice with 32 either."""


def _partition_cheapest(part: Part, shardings: PartShardings, terms: Terms, submesh: Submesh) -> Partitioned:
    """Sums over devices in every microbatch, or once behind the last one: whatever takes this part less time."""
    made = submesh.partition_part(part, shardings)
    if submesh.machine.num_devices == 1:
        return made
    results = made.module.entry.root.operands
    late = {number: lies for number, lies in terms.items() if _is_exchanged(results[number])}
    if not late:
        return made
    partial = tuple(late.get(number, lies) for number, lies in enumerate(shardings.makes))
    once = submesh.partition_part(part, shardings._replace(makes=partial))
    return min(made, once, key=lambda each: each.cost.time_s)


def _is_exchanged(result: Instruction) -> bool:
    """Do the devices make it together?  A collective's result, perhaps in another form or a part of it; many rows of
    all devices, added up by each; or what a loop gives, whose body may have one."""
    while result.opcode in SAME_ELEMENTS or result.opcode == "dynamic-slice":
        result = result.operands[0]
    if result.opcode == "scatter" and len(result.operands) == 3:
        table, _, rows = result.operands
        return _MANY_ROWS * rows.shape.byte_size > table.shape.byte_size and _is_exchanged(rows)
    return result.opcode in COLLECTIVES or result.opcode == "get-tuple-element"


_MANY_ROWS = 8
"""Rows of so many microbatches that come to a table of them: as much is moved as of its sum behind the last one."""
