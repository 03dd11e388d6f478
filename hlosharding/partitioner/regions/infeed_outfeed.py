"""Infeed and outfeed: each device exchanges its own tile with its host, without padding.

Floor: partitioner.  As XLA does: where tiles differ in size there is a branch per size, and a device takes its own;
what one device alone sends is a branch that the others do not take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.regions.one_device import branch_per_device
from hlosharding.partitioner.resharding import local_shape, pack, reshard_leaves, unpack, value_of
from hlosharding.partitioner.value import AnyValue, Value, shape_of_leaves
from hlosharding.sharding import REPLICATED, HloSharding
from hlosharding.spmd import Emitter

Sizes = tuple[tuple[int, ...], ...]
"""The dims of each array of a device's own part."""


def infeed(context: Context, inst: Instruction) -> AnyValue:
    """(data, token) from the host."""
    shardings = [w if w is not None else REPLICATED for w in context.wanted_leaves(inst)]
    data = inst.shape.tuple_shapes[0]
    # The last sharding is the token's.
    local = [local_shape(context, s, own) for s, own in zip(data.leaves, shardings[:-1], strict=True)]

    def take(emitter: Emitter, token: Instruction, sizes: Sizes) -> Instruction:
        own = shape_of_leaves(data, (s.with_dims(dims) for s, dims in zip(data.leaves, sizes, strict=True)))
        fed = emitter.local(inst, Shape.tuple((own, token.shape)), (token,))
        tiles, after = emitter.elements(fed)
        padded = _each(emitter, tiles, [s.dims for s in local])
        return emitter.op("tuple", Shape.tuple((padded.shape, after.shape)), (padded, after))

    token = pack(context, value_of(context, inst.operands[0]))
    fed = _exchanged(context, inst, token, _own_sizes(context, data, shardings[:-1]), take)
    return unpack(context, fed, inst.shape, shardings)


def outfeed(context: Context, inst: Instruction) -> AnyValue:
    """Data to the host; a token comes back."""
    data, given = inst.operands[0].shape, context.wanted(inst) or REPLICATED
    shardings = [as_compared(s) for s in given.normalize_tuple(len(data.leaves)).leaves[: len(data.leaves)]]
    value = reshard_leaves(context, value_of(context, inst.operands[0]), shardings, "data for the host")
    packed = [pack(context, value), pack(context, value_of(context, inst.operands[1]))]
    handed = context.emitter.op("tuple", Shape.tuple(tuple(p.shape for p in packed)), packed)

    def give(emitter: Emitter, handed: Instruction, sizes: Sizes) -> Instruction:
        tiles, token = emitter.elements(handed)
        own = _each(emitter, tiles, list(sizes))
        return emitter.local(inst, inst.shape, (own, token), outfeed_shape=own.shape)

    sizes = _own_sizes(context, data, shardings)
    if given.is_maximal():
        sizes = [s if device == given.device else None for device, s in enumerate(sizes)]
    return Value(_exchanged(context, inst, handed, sizes, give), inst.shape, REPLICATED)


def _own_sizes(context: Context, data: Shape, shardings: Sequence[HloSharding]) -> list[Sizes | None]:
    """What each device has of the arrays, padding left out."""
    pairs = list(zip(data.leaves, shardings, strict=True))
    return [
        tuple(s.tile_shape(shape.dims, device) if s.kind == "tiled" else shape.dims for shape, s in pairs)
        for device in range(context.num_partitions)
    ]


def _exchanged(
    context: Context,
    inst: Instruction,
    handed: Instruction,
    sizes: list[Sizes | None],
    exchange: Callable[[Emitter, Instruction, Sizes], Instruction],
) -> Instruction:
    """The exchange of every device's own sizes; a device without any does nothing (its result is its token)."""
    branches = list(dict.fromkeys(sizes))
    if len(branches) == 1 and branches[0] is not None:
        return exchange(context.emitter, handed, branches[0])

    def write(emitter: Emitter, operand: Instruction, own: Sizes | None) -> Instruction:
        return exchange(emitter, operand, own) if own is not None else emitter.elements(operand)[-1]

    return branch_per_device(context, inst, handed, branches, [branches.index(s) for s in sizes], write)


def _each(emitter: Emitter, value: Instruction, sizes: list[tuple[int, ...]]) -> Instruction:
    """Arrays padded or cut at their ends to other sizes (consumes the list)."""
    if not value.shape.is_tuple:
        size = sizes.pop(0)
        change = [new - old for new, old in zip(size, value.shape.dims, strict=True)]
        return emitter.pad(value, [0] * len(size), change)
    parts = [_each(emitter, part, sizes) for part in emitter.elements(value)]
    if all(p.shape is s for p, s in zip(parts, value.shape.tuple_shapes, strict=True)):
        return value
    return emitter.op("tuple", Shape.tuple(tuple(p.shape for p in parts)), parts)
