"""Values made from nothing, or from a scalar: constants, iota, broadcasts.  Each device makes its own tile.

Floor: partitioner.  Such values are made anew in every sharding a user wants, so they never travel.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.declared import lower_declared
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.pieces import PIECES, Piece
from hlosharding.partitioner.projection import REPLICATED, offsets
from hlosharding.partitioner.value import AnyValue, Pending, Value
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding


def constant(context: Context, inst: Instruction) -> AnyValue:
    """A constant of one repeated number is broadcast at the tile's size; any other is kept whole and cut."""
    if inst.shape.is_tuple or not inst.shape.is_array:
        return context.unpack(
            context.emitter.local(inst, inst.shape, ()), inst.shape, [REPLICATED] * len(inst.shape.leaves)
        )
    wanted = context.wanted_leaves(inst)[0] or REPLICATED
    flat = inst.literal.reshape(-1)
    if (
        inst.shape.rank
        and flat.size
        and (flat.view(np.uint8).reshape(flat.size, -1) == flat.view(np.uint8)[: flat.itemsize]).all()
    ):
        return _remade(context, inst, wanted, lambda s: _splat(context, inst, s))
    whole = Value(context.emitter.local(inst, inst.shape, ()), inst.shape, REPLICATED)
    return _remade(context, inst, wanted, lambda s: context.reshard(whole, s).local)


def _splat(context: Context, inst: Instruction, sharding: HloSharding) -> Instruction:
    return context.emitter.full(inst.literal.reshape(-1)[0], context.local_shape(inst.shape, sharding))


def iota(context: Context, inst: Instruction) -> AnyValue:
    """Count locally, then add the offset of the tile."""
    return _remade(context, inst, context.wanted_leaves(inst)[0] or REPLICATED, lambda s: _iota(context, inst, s))


def _iota(context: Context, inst: Instruction, sharding: HloSharding) -> Instruction:
    emitter, dim = context.emitter, inst.iota_dimension
    local = emitter.iota(context.local_shape(inst.shape, sharding), dim)
    if sharding.num_tiles_along(dim) == 1:
        return local
    start = emitter.per_device(offsets(sharding, inst.shape.dims, dim, context.num_partitions))
    start = emitter.op("convert", start.shape.with_type(inst.shape.element_type), (start,))
    return emitter.binary("add", local, emitter.full(start, local.shape))


def broadcast(context: Context, inst: Instruction) -> AnyValue | Pending:
    """A broadcast scalar is made at the tile's size; others by their signature."""
    operand = context.array(inst.operands[0])
    if operand.shape.rank or operand.sharding is not REPLICATED:
        signature = signature_of(inst)
        assert isinstance(signature, Signature)
        return lower_declared(context, inst, signature)

    def make(sharding: HloSharding) -> Instruction:
        return context.emitter.full(operand.local, context.local_shape(inst.shape, sharding))

    return _remade(context, inst, context.wanted_leaves(inst)[0] or REPLICATED, make)


def _remade(
    context: Context, inst: Instruction, sharding: HloSharding, make: Callable[[HloSharding], Instruction]
) -> Value:
    """A value that `make` makes at any tiling."""

    def remake(target: HloSharding) -> Value:
        return _remade(context, inst, target, make)

    if sharding.kind not in ("tiled", "replicated") or "unreduced" in sharding.subgroup_types:
        return Value(make(REPLICATED), inst.shape, sharding)
    return Value(make(sharding), inst.shape, sharding, remake=remake)


@PIECES.register("broadcast")
def _broadcast_piece(emitter: Emitter, piece: Piece) -> Instruction:
    """Made once for equal broadcasts of one value: programs are full of them."""
    return emitter.broadcast(piece.operands[0], piece.result_shapes[0].dims, piece.inst.dimensions)
