"""Where XLA's inference is more than passing a sharding on: one forward and one backward function per opcode."""

from hlosharding.propagation.handlers import contractions, indexing, layouts, reductions, tuples, windows
from hlosharding.propagation.handlers.indexing import output_dims_of
from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, other_operands

__all__ = [
    "BACKWARD",
    "FORWARD",
    "contractions",
    "indexing",
    "layouts",
    "other_operands",
    "output_dims_of",
    "reductions",
    "tuples",
    "windows",
]
