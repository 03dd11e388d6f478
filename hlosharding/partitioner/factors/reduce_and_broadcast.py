"""Reductions and broadcasts on one device: what differs from the same op on local shapes.

Floor: partitioner.
"""

from __future__ import annotations

from hlosharding.ir import Instruction, is_neutral
from hlosharding.partitioner.factors.local_op import LocalOp, emit_same_op
from hlosharding.spmd import Emitter, identity


def emit_reduce(emitter: Emitter, op: LocalOp) -> Instruction:
    """A reduction; where its initial value is more than neutral: from the neutral element, and then combined with it.

    XLA takes initial values for neutral: where a tile has one element along the reduced dims it forgets them.
    """
    kind = op.choice.reduce_kind
    if kind is None or kind == "other" or is_neutral(op.operands[1], kind):
        return emit_same_op(emitter, op)
    x, init = op.operands
    neutral = emitter.constant(identity(kind, init.shape))
    local = emit_same_op(emitter, op, (x, neutral))
    return emitter.binary(kind, local, emitter.broadcast(init, local.shape.dims, ()))


def emit_broadcast(emitter: Emitter, op: LocalOp) -> Instruction:
    """A broadcast, made once for equal broadcasts of one value: programs are full of them."""
    return emitter.broadcast(op.operands[0], op.result_shapes[0].dims, op.inst.dimensions)
