"""The strategy for ops whose dims are declared: choose a split of the factors, compute pieces, reduce partial sums."""

from hlosharding.partitioner.factors import dynamic_slices, indexed_pieces, reductions  # noqa: F401  (fill PIECES)
from hlosharding.partitioner.factors.collective_matmul import OVERLAPS
from hlosharding.partitioner.factors.deferred_reductions import (
    Paths,
    accumulators,
    first_leaf,
    found_owed,
    is_only_reader,
    may_accumulate,
    pass_through,
    waiting_pays,
)
from hlosharding.partitioner.factors.elementwise import ALIGNABLE, aligned
from hlosharding.partitioner.factors.factor_lowering import choice_of, compute_whole, lower_declared, warn_of_gathers
from hlosharding.partitioner.factors.pieces import PIECES, Piece

__all__ = [
    "ALIGNABLE",
    "OVERLAPS",
    "PIECES",
    "Paths",
    "Piece",
    "accumulators",
    "aligned",
    "choice_of",
    "compute_whole",
    "first_leaf",
    "found_owed",
    "is_only_reader",
    "lower_declared",
    "may_accumulate",
    "pass_through",
    "waiting_pays",
    "warn_of_gathers",
]
