"""Resharding: the cheapest steps from one sharding of an array to another, at or near the least bytes there can be."""

from hlosharding.reshard.axis_plan import combined
from hlosharding.reshard.batched_transfer import Transfer, plan_transfer
from hlosharding.reshard.layout import Layout, layout_of
from hlosharding.reshard.pieces import Pieces, Round
from hlosharding.reshard.planner import plan, plan_steps, plan_time
from hlosharding.reshard.regions import Region
from hlosharding.reshard.reshard_plan import ReshardPlan, plan_reshard
from hlosharding.reshard.steps import (
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
    "Slice",
    "Step",
    "Transfer",
    "combined",
    "layout_of",
    "plan",
    "plan_reshard",
    "plan_steps",
    "plan_time",
    "plan_transfer",
]
