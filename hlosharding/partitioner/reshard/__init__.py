"""Resharding: the cheapest steps from one sharding of an array to another, at or near the least bytes there can be."""

from hlosharding.partitioner.reshard.pieces import Pieces, Round
from hlosharding.partitioner.reshard.plan import plan_steps, plan_time
from hlosharding.partitioner.reshard.reshard_plan import ReshardPlan, plan_reshard
from hlosharding.partitioner.reshard.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    DynamicSlice,
    Keep,
    Pad,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "DynamicSlice",
    "Keep",
    "Pad",
    "Permute",
    "Pieces",
    "ReduceScatter",
    "ReshardPlan",
    "Round",
    "Slice",
    "Step",
    "plan_reshard",
    "plan_steps",
    "plan_time",
]
