"""The piece of a reduction whose initial value is more than neutral: reduced from the neutral element, then combined.

Floor: partitioner.
"""

from __future__ import annotations

from hlosharding.ir import Instruction, is_neutral
from hlosharding.partitioner.factors.pieces import PIECES, Piece, plain_piece
from hlosharding.spmd import Emitter, identity


@PIECES.register("reduce")
def _reduce(emitter: Emitter, piece: Piece) -> Instruction:
    kind = piece.choice.reduce_kind
    if kind is None or kind == "other" or is_neutral(piece.operands[1], kind):
        return plain_piece(emitter, piece)
    # XLA takes initial values for neutral: where a tile has one element along the reduced dims it forgets them.
    x, init = piece.operands
    neutral = emitter.constant(identity(kind, init.shape))
    local = plain_piece(emitter, piece, (x, neutral))
    return emitter.binary(kind, local, emitter.broadcast(init, local.shape.dims, ()))
