"""What plans consist of: steps that all devices take together, with their meaning, HLO, bytes and price."""

from hlosharding.reshard.steps.collective_steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Permute,
    ReduceScatter,
    transposes_seconds,
)
from hlosharding.reshard.steps.local_steps import DynamicSlice, Keep, Pad, Pairs, Slice, Step
from hlosharding.reshard.steps.pieces import Pieces, round_seconds
from hlosharding.reshard.steps.rounds import RESULT, Round

__all__ = [
    "RESULT",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "DynamicSlice",
    "Keep",
    "Pad",
    "Pairs",
    "Permute",
    "Pieces",
    "ReduceScatter",
    "Round",
    "Slice",
    "Step",
    "round_seconds",
    "transposes_seconds",
]
