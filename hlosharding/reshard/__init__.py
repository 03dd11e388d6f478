"""Resharding: the cheapest steps from one sharding of an array to another, at or near the least bytes there can be."""

from hlosharding.reshard.layout import Layout, Least, layout_of, least_of, received_elements
from hlosharding.reshard.objectives import (
    MARGIN,
    MORE_WORK,
    OBJECTIVES,
    Figures,
    best,
    check_objective,
    least_seconds,
    least_seconds_of_each,
    most_bytes_per_second,
    weigh,
)
from hlosharding.reshard.piecewise import BatchedTransfer, Region, plan_batched_transfer
from hlosharding.reshard.planner import plan, plan_steps
from hlosharding.reshard.request import ReshardRequest, is_partial
from hlosharding.reshard.reshard_plan import ReshardPlan, plan_reshard
from hlosharding.reshard.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    DynamicSlice,
    Keep,
    Pad,
    Permute,
    Pieces,
    ReduceScatter,
    Round,
    Slice,
    Step,
)

__all__ = [
    "MARGIN",
    "MORE_WORK",
    "OBJECTIVES",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "BatchedTransfer",
    "DynamicSlice",
    "Figures",
    "Keep",
    "Layout",
    "Least",
    "Pad",
    "Permute",
    "Pieces",
    "ReduceScatter",
    "Region",
    "ReshardPlan",
    "ReshardRequest",
    "Round",
    "Slice",
    "Step",
    "best",
    "check_objective",
    "is_partial",
    "layout_of",
    "least_of",
    "least_seconds",
    "least_seconds_of_each",
    "most_bytes_per_second",
    "plan",
    "plan_batched_transfer",
    "plan_reshard",
    "plan_steps",
    "received_elements",
    "weigh",
]
