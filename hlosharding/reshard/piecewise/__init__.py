"""Piecewise plans: every device gets exactly the pieces it lacks, from whoever holds them, in rounds of permutes."""

from hlosharding.reshard.piecewise.assign_rounds import pieces_in_rounds
from hlosharding.reshard.piecewise.groupings import groupings
from hlosharding.reshard.piecewise.piece_moves import moves_between
from hlosharding.reshard.piecewise.plans import BatchedTransfer, PiecewiseSearch, piecewise_plans, plan_batched_transfer
from hlosharding.reshard.piecewise.regions import Region

__all__ = [
    "BatchedTransfer",
    "PiecewiseSearch",
    "Region",
    "groupings",
    "moves_between",
    "pieces_in_rounds",
    "piecewise_plans",
    "plan_batched_transfer",
]
