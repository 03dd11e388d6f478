"""Where XLA's inference is more than passing a sharding on: one forward and one backward function per opcode."""

from hlosharding.propagation.handlers import (
    contractions,
    indexing,
    layouts,
    reductions,
    tuples,
    user_functions,
)
from hlosharding.propagation.handlers.indexing import output_dims_of
from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, other_operands
from hlosharding.propagation.handlers.tuples import leaves_offered

__all__ = [
    "BACKWARD",
    "FORWARD",
    "contractions",
    "indexing",
    "layouts",
    "leaves_offered",
    "other_operands",
    "output_dims_of",
    "reductions",
    "tuples",
    "user_functions",
]
