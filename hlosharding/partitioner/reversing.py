"""Reverse: a reversed dim stays split, its tiles lie on the mirrored devices.

Floor: partitioner.  Follows what XLA's propagation does with reverse (device order flipped): usually nothing moves.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.projection import REPLICATED, local_shape_dims, uneven_dims, untile
from hlosharding.partitioner.value import AnyValue, Value
from hlosharding.sharding import HloSharding, reverse_sharding


def reverse(context: Context, inst: Instruction) -> AnyValue:
    """The cheaper of: the result's tiles mirrored back, the operand's on.  Uneven reversed dims are made whole."""
    value, wanted = context.array(inst.operands[0]), context.wanted_leaves(inst)[0]

    def price(pair: tuple[HloSharding, HloSharding]) -> float:
        return context.price(value, pair[0]) + context.prices.move(inst.shape, pair[1], wanted or pair[1], None)

    source, target = min(_pairs(inst, value.whole_sharding, wanted), key=price)
    moved = context.reshard(value, source, "operand of a reverse")
    shape = inst.shape.with_dims(local_shape_dims(target, inst.shape.dims))
    return context.settle(Value(context.emitter.local(inst, shape, (moved.local,)), inst.shape, target), wanted)


def _pairs(
    inst: Instruction, source: HloSharding, wanted: HloSharding | None
) -> Iterator[tuple[HloSharding, HloSharding]]:
    for sharding in (wanted, source):
        if sharding is not None and sharding.kind == "tiled":
            uneven = tuple(d for d in uneven_dims(sharding, inst.shape.dims) if d in inst.dimensions)
            even = untile(sharding, uneven)
            mirrored = reverse_sharding(even, inst.dimensions).meaning if even.kind == "tiled" else even
            yield (mirrored, even) if sharding is wanted else (even, mirrored)
    yield REPLICATED, REPLICATED
