"""A program to be compared: its values with their shardings, its collectives, its cost.

Floor: plans.  Takes what users hold: a module, annotated or split already, a propagation, a partitioned program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlosharding.compiler import Partitioned, partition, prices_of
from hlosharding.cost import CostReport, Machine, cost
from hlosharding.errors import HloShardingError
from hlosharding.ir import Module, collective_kind
from hlosharding.partitioner import PartitionOptions
from hlosharding.propagation import Propagation, propagate
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class Side:
    """One of two programs."""

    module: Module
    shardings: Mapping[str, HloSharding | None]
    cost: CostReport
    is_split: bool = False
    """Is `module` the program of one device?"""

    @classmethod
    def of(cls, program: Any, machine: Machine | None, options: PartitionOptions | None) -> Side:
        """Of a Module, a Propagation, a Partitioned, or what holds one of these; what is not split yet is partitioned.

        Raises HloShardingError for anything else.
        """
        program = getattr(program, "partitioned", program)
        if isinstance(program, Module) and is_per_device(program):
            shardings = {inst.name: program.sharding(inst) for inst in program.instructions}
            prices = prices_of(machine, program.num_partitions, program)
            return cls(program, shardings, cost(program, prices), is_split=True)
        if isinstance(program, Module):
            program = propagate(program)
        if isinstance(program, Propagation):
            program = partition(program, machine=machine, options=options)
        if isinstance(program, Partitioned) and program.propagation is not None:
            return cls(program.propagation.module, program.propagation.shardings, program.cost)
        if isinstance(getattr(program, "module", None), Module):
            return cls.of(program.module, machine, options)
        raise HloShardingError(
            f"a {type(program).__name__} is no program", remedy="pass a Module, a Propagation or a Partitioned"
        )


def is_per_device(module: Module) -> bool:
    """Was the program split already: does it say who talks to whom, outside regions that its writer made manual?"""
    if module.num_partitions < 2:
        return False
    if module.is_scheduled:
        return True
    has_manual = any(
        leaf.is_manual() or leaf.is_manual_subgroup() for each in module.distinct_shardings for leaf in each.leaves
    )
    return not has_manual and any(collective_kind(inst.opcode) for inst in module.instructions)
