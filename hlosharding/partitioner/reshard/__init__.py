"""Resharding: the cheapest steps from one sharding of an array to another, at or near the least bytes there can be."""

from hlosharding.partitioner.reshard.layout import Layout, layout_of
from hlosharding.partitioner.reshard.pieces import Pieces, Round
from hlosharding.partitioner.reshard.plan import plan_steps, plan_time
from hlosharding.partitioner.reshard.regions import Region
from hlosharding.partitioner.reshard.reshard_plan import ReshardPlan, plan_reshard
from hlosharding.partitioner.reshard.shipping import Shipped, ship
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
    "Layout",
    "Pad",
    "Permute",
    "Pieces",
    "ReduceScatter",
    "Region",
    "ReshardPlan",
    "Round",
    "Shipped",
    "Slice",
    "Step",
    "layout_of",
    "plan_reshard",
    "plan_steps",
    "plan_time",
    "ship",
]
