"""Resharding: the cheapest steps from one sharding of an array to another, at or near the least bytes there can be."""

from hlosharding.reshard.batched_transfer import BatchedTransfer, plan_batched_transfer
from hlosharding.reshard.layout import Layout, layout_of, received_elements
from hlosharding.reshard.least import Least, least_of
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
from hlosharding.reshard.piecewise import Region
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
