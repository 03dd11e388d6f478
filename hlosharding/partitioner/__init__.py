"""From a global module with shardings to a local one with explicit collectives."""

from hlosharding.partitioner.choice import OpPlan
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.factors import (
    OpSplit,
    SplitAlternative,
    SplitAlternatives,
    alternatives_of,
    even_placements,
    every_split,
)
from hlosharding.partitioner.global_choice import improved_table
from hlosharding.partitioner.iteration_space import as_compared, lift, project
from hlosharding.partitioner.options import OVERLAPS, PartitionOptions
from hlosharding.partitioner.overrides import (
    ProgramShardings,
    ShardingOverride,
    ShardingTable,
    has_manual_groups,
    other_tables,
    propagated_table,
    unrelaxed_table,
)
from hlosharding.partitioner.partial_sums import linear_operands
from hlosharding.partitioner.partition import LocalProgram, check_devices, partition_module
from hlosharding.partitioner.plain_forms import in_plain_forms
from hlosharding.partitioner.prices import SMALL, Cost, Prices, cost_of_plan
from hlosharding.partitioner.repeated_layers import Folded, LayersDiffer, alike_in_layers, folded

__all__ = [
    "OVERLAPS",
    "SMALL",
    "Cost",
    "Decisions",
    "Folded",
    "LayersDiffer",
    "LocalProgram",
    "OpPlan",
    "OpSplit",
    "PartitionOptions",
    "Prices",
    "ProgramShardings",
    "ShardingOverride",
    "ShardingTable",
    "SplitAlternative",
    "SplitAlternatives",
    "alike_in_layers",
    "alternatives_of",
    "as_compared",
    "check_devices",
    "cost_of_plan",
    "even_placements",
    "every_split",
    "folded",
    "has_manual_groups",
    "improved_table",
    "in_plain_forms",
    "lift",
    "linear_operands",
    "other_tables",
    "partition_module",
    "project",
    "propagated_table",
    "unrelaxed_table",
]
