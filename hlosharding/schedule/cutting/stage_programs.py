"""The parts of a pipeline, partitioned for the submesh of their stage.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hlosharding.compiler import Partitioned, partition
from hlosharding.cost import Machine
from hlosharding.executor import Structure
from hlosharding.ir import COLLECTIVES, Instruction
from hlosharding.partitioner import PartitionOptions
from hlosharding.schedule.cutting.batch_flow import keep_split
from hlosharding.schedule.cutting.pieces import Part
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.sharding import HloSharding, copies_as_partials


class PartShardings(NamedTuple):
    """How the values of a part lie."""

    reads: tuple[HloSharding, ...]
    inside: tuple[tuple[int, HloSharding], ...]
    """Of some of its instructions, by place."""
    makes: tuple[HloSharding, ...]
    flows: tuple[tuple[int | None, ...], ...]
    """Of each of `split_flows`, the dim of what it reads along which it lies."""


@dataclass(frozen=True)
class Submesh:
    """Where a stage runs, and how its programs are partitioned for it.  Equal ones may share programs."""

    machine: Machine
    """Of these devices alone."""
    options: PartitionOptions | None
    devices: tuple[int, ...] = field(compare=False)

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    def partitioned(self, part: Part, shardings: PartShardings) -> Partitioned:
        """The program of a part whose values lie so."""
        module = part.module.clone()
        module.num_partitions = self.num_devices
        instructions = module.instructions
        for number, sharding in shardings.inside:
            module.shardings[instructions[number].id] = sharding
        for parameter, sharding in zip(module.entry.parameters, shardings.reads, strict=True):
            module.shardings[parameter.id] = sharding
        module.shardings[module.entry.root.id] = HloSharding.tuple(shardings.makes)
        keep_split(module, [{n: dim for n, dim in enumerate(dims) if dim is not None} for dims in shardings.flows])
        return partition(module, num_partitions=self.num_devices, machine=self.machine, options=self.options)


class StagePrograms:
    """Of several parts that do the same, one program."""

    def __init__(self) -> None:
        self._structure = Structure()
        self._programs: dict[tuple[Any, ...], StageProgram] = {}

    def of(self, part: Part, shardings: PartShardings, deferrable: Sequence[int], submesh: Submesh) -> StageProgram:
        """The program of a part.  `deferrable`: of its sums those that may be left in terms, one a device."""
        same = self._structure.computation(part.module.entry)
        key = same, shardings, tuple(deferrable), part.sums, submesh
        if key not in self._programs:
            found = _cheapest(part, shardings, deferrable, submesh)
            self._programs[key] = StageProgram(part.module.name, found.program, sums=part.sums)
        return self._programs[key]


def _cheapest(part: Part, shardings: PartShardings, deferrable: Sequence[int], submesh: Submesh) -> Partitioned:
    """Sums over devices in every microbatch, or once behind the last one: whatever this part moves less for."""
    made = submesh.partitioned(part, shardings)
    if submesh.num_devices == 1:
        return made
    results = made.module.entry.root.operands
    late = {n for n in deferrable if _is_exchanged(results[n])}
    if not late:
        return made
    partial = (copies_as_partials(lies) if n in late else lies for n, lies in enumerate(shardings.makes))
    once = submesh.partitioned(part, shardings._replace(makes=tuple(partial)))
    return once if once.comm_bytes_per_device < made.comm_bytes_per_device else made


def _is_exchanged(result: Instruction) -> bool:
    """Do the devices make it together?  A collective's result, perhaps in another form, or what a loop gives, whose
    body may have one."""
    while result.opcode in _FORMS:
        result = result.operands[0]
    return result.opcode in COLLECTIVES or result.opcode == "get-tuple-element"


_FORMS = frozenset({"bitcast", "convert", "copy", "reshape", "transpose"})
