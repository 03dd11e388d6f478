"""Ops on one element after the other whose operands all have the sharding that the result shall have: most ops.

Floor: partitioner.  Nothing moves and nothing is to be decided: the op itself, on tiles.  All else is lowered by the
factors of its signature.
"""

from __future__ import annotations

from hlosharding.ir import ELEMENTWISE, Instruction
from hlosharding.partitioner.broadcast_dims import common_dims
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.resharding import local_shape
from hlosharding.partitioner.value import Value

# A copy is no op here, a convert remembers what it was made of, and a bitcast may have a dim more than its operand.
FAST_ELEMENTWISE = ELEMENTWISE - {"copy", "convert", "bitcast-convert"}


def lower_aligned_elementwise(context: Context, inst: Instruction) -> Value | None:
    """The op of an opcode in `FAST_ELEMENTWISE` on tiles; None where an operand is sharded otherwise, or partial."""
    given = context.shardings.get(inst.id)
    if given is None or context.decisions.has_manual_groups or context.manual_groups is not None:
        return None
    sharding, shape, values = given.meaning, inst.shape, context.values
    if sharding.kind != "tiled" and sharding.kind != "replicated":
        return None
    locals_, tile, broadcast_dims = [], None, None
    for operand in inst.operands:
        value = values[operand]
        if type(value) is not Value or value.sharding is not sharding or value.reduce_kind is not None:
            return None
        locals_.append(value.local)
        broadcast_dims = (
            value.broadcast_dims
            if broadcast_dims is None
            else broadcast_dims and common_dims(broadcast_dims, value.broadcast_dims)
        )
        if value.shape is shape:
            tile = value.local.shape
    made = context.emitter.local(inst, tile or local_shape(context, shape, sharding), locals_)
    return Value(made, shape, sharding, broadcast_dims=broadcast_dims or ())
