"""From a global module with shardings to a local one with explicit collectives."""

from hlosharding.partitioner.partition import LocalProgram, PartitionOptions, partition_module

__all__ = ["LocalProgram", "PartitionOptions", "partition_module"]
