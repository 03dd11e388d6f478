"""Reshape: carry the tiling across where dims line up, else gather no more than what is in the way.

Floor: partitioner.  A pair (operand sharding, result sharding) may be reshaped locally when, in each smallest group of
dims that the reshape maps onto each other, either nothing changes or all splits are even and every device's elements
stay its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.broadcast_dims import broadcast_dims_after_reshape, slimmed
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.iteration_space import untile
from hlosharding.partitioner.prices import Cost
from hlosharding.partitioner.region_values import array_of
from hlosharding.partitioner.resharding import local_shape, reshard, reshard_price, to_wanted
from hlosharding.partitioner.value import AnyValue, Value
from hlosharding.reshard import Region, Transfer, layout_of, plan_transfer
from hlosharding.sharding import (
    REPLICATED,
    HloSharding,
    is_local_reshape,
    propagate_through_reshape,
    reshape_runs,
    uneven_dims,
)

Dims = tuple[int, ...]


def reshape(context: Context, inst: Instruction) -> AnyValue:
    """The cheapest of: the result's tiling carried back, the operand's carried on, each without what hinders."""
    value, shape = array_of(context, inst.operands[0]), inst.shape
    wanted = context.wanted_leaves(inst)[0]
    source, target = choose_reshape(context, value, shape, wanted)
    moved = reshard(context, value, source, "operand of a reshape")
    if not is_local_reshape(source, value.shape.dims, target, shape.dims):
        return _over_borders(context, inst, moved, target)
    local = context.emitter.reshape(moved.local, local_shape(context, shape, target).dims)
    broadcast_dims = value.broadcast_dims and broadcast_dims_after_reshape(
        value.shape.dims, shape.dims, value.broadcast_dims
    )
    made = Value(
        local, shape, target, value.reduce_kind if source is value.sharding else None, broadcast_dims=broadcast_dims
    )
    return made if target is wanted else to_wanted(context, made, wanted)


def _over_borders(context: Context, inst: Instruction, value: Value, target: HloSharding) -> Value:
    """Where each run of dims is one line of elements on both sides: the elements between unlike borders move."""
    transfer = _transfer(context, value.shape, value.whole_sharding, inst.shape, target)
    assert transfer is not None, "only such a pair is chosen that lines can be shipped for"
    emitter = context.emitter
    emitter.reason = "elements moved by a reshape"
    runs = [
        math.prod(value.local.shape.dims[d] for d in here)
        for here, _ in reshape_runs(value.shape.dims, inst.shape.dims)
    ]
    local = transfer.pieces.emit(emitter, emitter.reshape(value.local, runs))
    return Value(emitter.reshape(local, target.tile_shape(inst.shape.dims)), inst.shape, target)


def _transfer(
    context: Context, shape: Shape, source: HloSharding, result: Shape, target: HloSharding
) -> Transfer | None:
    if 0 in shape.dims or {"manual", "unreduced"} & {*source.subgroup_types, *target.subgroup_types}:
        return None
    found, n = reshape_runs(shape.dims, result.dims), context.num_partitions
    before = layout_of(source, shape.dims, n).flattened(tuple(here for here, _ in found))
    after = layout_of(target, result.dims, n).flattened(tuple(there for _, there in found))
    if before is None or after is None:
        return None
    flat, prices = shape.with_dims(before.dims), context.prices
    whole = (Region.whole(flat.dims),)
    return plan_transfer(whole, (before,), after, flat, machine=prices.machine, objective=prices.objective)


def choose_reshape(
    context: Context, value: Value, shape: Shape, wanted: HloSharding | None
) -> tuple[HloSharding, HloSharding]:
    """(operand sharding, result sharding) of the reshape; memoised.

    Local, or straight from what the operand has to what is wanted, elements moving between.
    """
    asked = None if wanted is None else wanted.uid
    key = (value.shape, shape, value.sharding.uid, value.reduce_kind, value.is_at_hand, value.broadcast_dims, asked)
    found = context.decisions.reshapes.get(key)
    if found is None:
        prices, broadcast_dims = (
            context.prices,
            broadcast_dims_after_reshape(value.shape.dims, shape.dims, value.broadcast_dims),
        )

        def price(pair: tuple[HloSharding, HloSharding]) -> float:
            source, target = pair
            work = shape.with_dims(target.tile_shape(shape.dims)).byte_size
            return (
                reshard_price(context, value, source)
                + prices.move(*slimmed(shape, target, wanted or target, broadcast_dims), None)
                + prices.work(0, work, False)
            )

        found = min(_pairs(value.whole_sharding, value.shape.dims, shape.dims, wanted), key=price)
        if wanted is not None and value.rematerialize is None and price(found) > 0:
            own, local = value.whole_sharding, shape.with_dims(wanted.tile_shape(shape.dims))
            transfer = (
                _transfer(context, value.shape, own, shape, wanted) if "tiled" in (own.kind, wanted.kind) else None
            )
            if transfer is not None:
                moved = reshard_price(context, value, own) + prices.rated(Cost(transfer.mean_bytes, transfer.seconds))
                found = (own, wanted) if moved + prices.work(0, local.byte_size, False) < price(found) else found
        context.decisions.reshapes[key] = found
    return found


def _pairs(
    source: HloSharding, dims: Dims, result_dims: Dims, wanted: HloSharding | None
) -> Iterator[tuple[HloSharding, HloSharding]]:
    if wanted is not None and wanted.kind in ("tiled", "replicated"):
        for pair in _local_pairs(wanted, result_dims, dims):
            yield pair[1], pair[0]
    if source.kind in ("tiled", "replicated"):
        yield from _local_pairs(source, dims, result_dims)
    yield REPLICATED, REPLICATED


@lru_cache(maxsize=1 << 14)
def _local_pairs(sharding: HloSharding, dims: Dims, other_dims: Dims) -> tuple[tuple[HloSharding, HloSharding], ...]:
    """Pairs that start from `sharding`: as it is, or without the tiles that do not get through."""
    found = []
    carried = propagate_through_reshape(dims, other_dims, sharding).meaning
    back = propagate_through_reshape(other_dims, dims, carried).meaning
    for here, there in ((sharding, carried), (back, carried)):
        if is_local_reshape(here, dims, there, other_dims):
            found.append((here, there))
    if not found:
        even = untile(sharding, uneven_dims(sharding, dims))
        carried = propagate_through_reshape(dims, other_dims, even).meaning
        back = propagate_through_reshape(other_dims, dims, carried).meaning
        if is_local_reshape(back, dims, carried, other_dims):
            found.append((back, carried))
    return tuple(found)
