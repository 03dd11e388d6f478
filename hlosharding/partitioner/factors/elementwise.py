"""Ops on one element after the other whose operands all have the sharding that the result shall have: most ops.

Floor: partitioner.  Nothing moves and nothing is to be decided: the op itself, on tiles.  All else is declared.
"""

from __future__ import annotations

from hlosharding.ir import ELEMENTWISE, Instruction
from hlosharding.partitioner.broadcast_dims import common_dims
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors.pieces import is_computed_as_is
from hlosharding.partitioner.value import Value

# A copy is no op here, a convert remembers what it was made of, and a bitcast may have a dim more than its operand.
ALIGNABLE = frozenset(filter(is_computed_as_is, ELEMENTWISE)) - {"copy", "convert", "bitcast-convert"}


def aligned(context: Context, inst: Instruction) -> Value | None:
    """The op of an opcode in `ALIGNABLE` on tiles; None where an operand lies otherwise, or owes a sum."""
    given = context.shardings.get(inst.id)
    if given is None or context.decisions.has_worlds or context.world is not None:
        return None
    sharding, shape, values = given.meaning, inst.shape, context.values
    if sharding.kind != "tiled" and sharding.kind != "replicated":
        return None
    locals_, tile, same = [], None, None
    for operand in inst.operands:
        value = values[operand]
        if type(value) is not Value or value.sharding is not sharding or value.reduce_kind is not None:
            return None
        locals_.append(value.local)
        same = value.same if same is None else same and common_dims(same, value.same)
        if value.shape is shape:
            tile = value.local.shape
    made = context.emitter.local(inst, tile or context.local_shape(shape, sharding), locals_)
    return Value(made, shape, sharding, same=same or ())
