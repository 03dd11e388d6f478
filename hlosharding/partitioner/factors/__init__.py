"""The strategy for ops with a signature: choose a split of its factors, compute on tiles, reduce partial results."""

from hlosharding.partitioner.factors.alternatives import SplitAlternative, SplitAlternatives, alternatives_of
from hlosharding.partitioner.factors.factor_lowering import (
    FAST_ELEMENTWISE,
    choice_of,
    lower_aligned_elementwise,
    lower_by_factors,
    lower_by_signature,
)
from hlosharding.partitioner.factors.lowering_choice import lowering_of

__all__ = [
    "FAST_ELEMENTWISE",
    "SplitAlternative",
    "SplitAlternatives",
    "alternatives_of",
    "choice_of",
    "lower_aligned_elementwise",
    "lower_by_factors",
    "lower_by_signature",
    "lowering_of",
]
