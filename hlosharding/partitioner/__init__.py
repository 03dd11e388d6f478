"""From a global module with shardings to a local one with explicit collectives."""

from hlosharding.partitioner.iteration_space import lift, project
from hlosharding.partitioner.overrides import ShardingOverride
from hlosharding.partitioner.partition import LocalProgram, PartitionOptions, partition_module

__all__ = [
    "LocalProgram",
    "PartitionOptions",
    "ShardingOverride",
    "lift",
    "partition_module",
    "project",
]
