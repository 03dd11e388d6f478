"""The strategy for ops with a signature: choose a split of its factors, compute on tiles, reduce partial results."""

from hlosharding.partitioner.factors.deferred_reductions import pass_through, waiting_pays
from hlosharding.partitioner.factors.elementwise import FAST_ELEMENTWISE, lower_aligned_elementwise
from hlosharding.partitioner.factors.factor_lowering import choice_of, lower_by_factors, lower_by_signature
from hlosharding.partitioner.factors.local_rules import LOCAL_RULES, LocalRule
from hlosharding.partitioner.factors.loop_accumulators import (
    Paths,
    accumulators,
    deferred_sums,
    first_leaf,
    is_only_reader,
    may_accumulate,
)
from hlosharding.partitioner.factors.whole_computation import compute_whole, warn_of_gathers

__all__ = [
    "FAST_ELEMENTWISE",
    "LOCAL_RULES",
    "LocalRule",
    "Paths",
    "accumulators",
    "choice_of",
    "compute_whole",
    "deferred_sums",
    "first_leaf",
    "is_only_reader",
    "lower_aligned_elementwise",
    "lower_by_factors",
    "lower_by_signature",
    "may_accumulate",
    "pass_through",
    "waiting_pays",
    "warn_of_gathers",
]
