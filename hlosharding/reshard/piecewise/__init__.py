"""Piecewise plans: every device gets exactly the pieces it lacks, from whoever holds them, in rounds of permutes."""

from hlosharding.reshard.piecewise.assign_rounds import pieces_in_rounds
from hlosharding.reshard.piecewise.groupings import groupings
from hlosharding.reshard.piecewise.piece_moves import PieceMoves, moves_between, moves_of_regions
from hlosharding.reshard.piecewise.plans import PiecewiseSearch, piecewise_plans
from hlosharding.reshard.piecewise.regions import Region

__all__ = [
    "PieceMoves",
    "PiecewiseSearch",
    "Region",
    "groupings",
    "moves_between",
    "moves_of_regions",
    "pieces_in_rounds",
    "piecewise_plans",
]
