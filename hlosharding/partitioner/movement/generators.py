"""Generators: values made from nothing, or from a scalar: constants, iota, broadcasts.  Each device makes its own tile.

Floor: partitioner.  Such values are rematerialized in every sharding a user wants, so they are never resharded.  Random
numbers alone are drawn once each, and sent to all that hold them.  A strategy writes a tile by `context.emitter`
(`per_device`: another number on each device) and says how one of any other sharding is made (`rematerialize`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, read_literals
from hlosharding.partitioner.choice import Lowering
from hlosharding.partitioner.context import Context, PlanContext
from hlosharding.partitioner.factors import Places, lower_by_signature, plan_by_signature
from hlosharding.partitioner.local_ops import as_index
from hlosharding.partitioner.resharding import array_of, local_shape, replicate, reshard, to_wanted
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, from_leaves
from hlosharding.rules import is_splat
from hlosharding.sharding import REPLICATED, HloSharding, offsets, without_partials


def constant(context: Context, inst: Instruction) -> AnyValue:
    """A constant of one repeated number is broadcast at the tile's size; any other is kept whole and cut."""
    if not inst.shape.is_array:
        leaves = zip(read_literals(inst.proto.literal), inst.shape.leaves, context.wanted_leaves(inst), strict=True)
        parts = [(Value(context.emitter.constant(array), shape, REPLICATED), wanted) for array, shape, wanted in leaves]
        return from_leaves(inst.shape, [to_wanted(context, whole, wanted) for whole, wanted in parts])
    if inst.shape.rank and inst.shape.size and is_splat(inst):
        return _everywhere(context, inst, inst.literal.reshape(-1)[0])
    wanted = context.wanted_leaves(inst)[0] or REPLICATED
    whole = Value(context.emitter.local(inst, inst.shape, ()), inst.shape, REPLICATED)
    return _rematerialized(context, inst, wanted, lambda s: reshard(context, whole, s).local, ())


def _everywhere(context: Context, inst: Instruction, value: Any) -> Value:
    """One number (or scalar instruction) in all places: made at the tile's size."""

    def make(sharding: HloSharding) -> Instruction:
        return context.emitter.full(value, local_shape(context, inst.shape, sharding))

    wanted = context.wanted_leaves(inst)[0] or REPLICATED
    return _rematerialized(context, inst, wanted, make, tuple(range(inst.shape.rank)))


def iota(context: Context, inst: Instruction) -> AnyValue:
    """Count locally, then add the offset of the tile."""
    broadcast_dims = tuple(d for d in range(inst.shape.rank) if d != inst.iota_dimension)
    wanted = context.wanted_leaves(inst)[0] or REPLICATED
    return _rematerialized(context, inst, wanted, lambda s: _iota(context, inst, s), broadcast_dims)


def _iota(context: Context, inst: Instruction, sharding: HloSharding) -> Instruction:
    emitter, dim = context.emitter, inst.iota_dimension
    shape = local_shape(context, inst.shape, sharding)
    if sharding.num_tiles_along(dim) == 1:
        return emitter.iota(shape, dim)
    start = emitter.per_device(offsets(sharding, inst.shape.dims, dim, context.num_partitions))
    # Whole numbers wrap alike before and after the sum; others are rounded, and only the sum may be.
    kind = inst.shape.element_type if inst.shape.is_integral else start.shape.element_type
    start = as_index(emitter, start, start.shape.with_type(kind))
    local = emitter.iota(shape.with_type(kind), dim)
    counted = emitter.binary("add", local, emitter.full(start, local.shape))
    return counted if kind == inst.shape.element_type else emitter.op("convert", shape, (counted,))


def broadcast(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """A broadcast scalar is made at the tile's size; others by their signature."""
    operand = array_of(context, inst.operands[0])
    if operand.shape.rank or operand.sharding is not REPLICATED:
        return lower_by_signature(context, inst)
    return _everywhere(context, inst, operand.local)


def plan_broadcast(
    context: PlanContext, inst: Instruction, operands: Places, wanted: HloSharding | None
) -> Lowering | None:
    """That of a scalar needs none."""
    return plan_by_signature(context, inst, operands, wanted) if operands[0].shape.rank else None


def plan_nothing(_context: PlanContext, _inst: Instruction, _operands: Places, _wanted: HloSharding | None) -> None:
    """Each device makes what it needs."""


def random(context: Context, inst: Instruction) -> AnyValue:
    """Devices draw different numbers: each draws its own part of a tile that several hold, and the parts are joined."""
    # A scalar is drawn as a line of one number, whose tile one device has: it is sent to all.
    wanted, dims = context.wanted_leaves(inst)[0], inst.shape.dims or (1,)
    limits = [replicate(context, array_of(context, o)).local for o in inst.operands]
    own = _drawn_apart(wanted or REPLICATED, dims, context.num_partitions)
    shape = inst.shape.with_dims(dims)
    drawn = Value(context.emitter.local(inst, local_shape(context, shape, own), limits), shape, own)
    if inst.shape.rank:
        return to_wanted(context, drawn, wanted, "random numbers for all that hold them")
    whole = reshard(context, drawn, REPLICATED, "random numbers for all that hold them")
    return Value(context.emitter.reshape(whole.local, ()), inst.shape, REPLICATED)


def _drawn_apart(sharding: HloSharding, dims: tuple[int, ...], num_devices: int) -> HloSharding:
    """The sharding with its copies as tiles of the dim that is longest in a tile.

    >>> str(_drawn_apart(HloSharding.parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"), (6, 9), 8))
    '{devices=[2,4]<=[8]}'
    """
    sharding = without_partials(sharding)
    if sharding.kind == "tiled":
        grid = sharding.tiles.array.reshape(*sharding.data_dims, -1)
    else:
        grid = np.arange(num_devices).reshape(*(1,) * len(dims), -1)
    tile = sharding.tile_shape(dims)
    dim = tile.index(max(tile))
    splits = [n * grid.shape[-1] if d == dim else n for d, n in enumerate(grid.shape[:-1])]
    return HloSharding.partial_tile(np.moveaxis(grid, -1, dim + 1).reshape(*splits, 1)).meaning


def _rematerialized(
    context: Context,
    inst: Instruction,
    sharding: HloSharding,
    make: Callable[[HloSharding], Instruction],
    broadcast_dims: tuple[int, ...],
) -> Value:
    """A value that `make` makes at any tiling; the same along the dims `broadcast_dims`."""

    def rematerialize(target: HloSharding) -> Value:
        return _rematerialized(context, inst, target, make, broadcast_dims)

    # Devices that all made the whole would each have it as a term: the sum would count it as often as there are
    # devices.
    if sharding.is_unreduced() or "unreduced" in sharding.subgroup_types:
        return reshard(context, Value(make(REPLICATED), inst.shape, REPLICATED), sharding)
    if sharding.kind not in ("tiled", "replicated"):
        return Value(make(REPLICATED), inst.shape, sharding)
    return Value(make(sharding), inst.shape, sharding, rematerialize=rematerialize, broadcast_dims=broadcast_dims)
