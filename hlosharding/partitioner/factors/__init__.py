"""The strategy for ops whose dims are declared: choose a split of the factors, compute pieces, reduce partial sums."""

from hlosharding.partitioner.factors import dynamic_slices, indexed_pieces, reductions  # noqa: F401  (fill PIECES)
from hlosharding.partitioner.factors.deferred_reductions import (
    Paths,
    accumulators,
    deferred_sums,
    first_leaf,
    is_only_reader,
    may_accumulate,
    pass_through,
    waiting_pays,
)
from hlosharding.partitioner.factors.elementwise import FAST_ELEMENTWISE, lower_aligned_elementwise
from hlosharding.partitioner.factors.factor_lowering import (
    choice_of,
    compute_whole,
    lower_by_factors,
    lower_by_signature,
    warn_of_gathers,
)
from hlosharding.partitioner.factors.pieces import PIECES, Piece

__all__ = [
    "FAST_ELEMENTWISE",
    "PIECES",
    "Paths",
    "Piece",
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
