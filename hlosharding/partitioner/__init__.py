"""From a global module with shardings to a local one with explicit collectives."""

from hlosharding.partitioner.departures import Departure
from hlosharding.partitioner.partition import LocalProgram, PartitionOptions, partition_module
from hlosharding.partitioner.projection import lift, project
from hlosharding.partitioner.reshard import ReshardPlan, plan_reshard
from hlosharding.partitioner.verifier import verify_partitioned

__all__ = [
    "Departure",
    "LocalProgram",
    "PartitionOptions",
    "ReshardPlan",
    "lift",
    "partition_module",
    "plan_reshard",
    "project",
    "verify_partitioned",
]
