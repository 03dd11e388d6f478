"""The strategy for ops with a signature: choose a split of its factors, compute on tiles, reduce partial results."""

from hlosharding.partitioner.factors import ring_attention
from hlosharding.partitioner.factors.alternatives import (
    OpSplit,
    SplitAlternative,
    SplitAlternatives,
    alternatives_of,
    even_placements,
    every_split,
)
from hlosharding.partitioner.factors.choice_problem import SplitQuestion
from hlosharding.partitioner.factors.factor_lowering import (
    FAST_ELEMENTWISE,
    choice_of,
    lower_aligned_elementwise,
    lower_by_factors,
    lower_by_signature,
    plan_by_signature,
)
from hlosharding.partitioner.factors.lowering_choice import Places, least_sent, ways_to_lie
from hlosharding.partitioner.factors.option_prices import Options, Slots, prices_of_options

__all__ = [
    "FAST_ELEMENTWISE",
    "OpSplit",
    "Options",
    "Places",
    "Slots",
    "SplitAlternative",
    "SplitAlternatives",
    "SplitQuestion",
    "alternatives_of",
    "choice_of",
    "even_placements",
    "every_split",
    "least_sent",
    "lower_aligned_elementwise",
    "lower_by_factors",
    "lower_by_signature",
    "plan_by_signature",
    "prices_of_options",
    "ring_attention",
    "ways_to_lie",
]
