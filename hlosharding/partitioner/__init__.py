"""From a global module with shardings to a local one with explicit collectives."""

from hlosharding.partitioner.iteration_space import lift, project
from hlosharding.partitioner.overrides import Departure
from hlosharding.partitioner.partition import LocalProgram, PartitionOptions, partition_module

__all__ = [
    "Departure",
    "LocalProgram",
    "PartitionOptions",
    "lift",
    "partition_module",
    "project",
]
