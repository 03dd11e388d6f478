"""Reshape: carry the tiling across where dims line up, else gather no more than what is in the way.

Floor: partitioner.  A pair (operand sharding, result sharding) may be reshaped locally when, in each smallest group of
dims that the reshape maps onto each other, either nothing changes or all splits are even and every device's elements
stay its own.  Else, where it is cheaper, elements move straight from the operand's tiles to those of the result:

    f32[12] in 4 tiles     0 1 2|3 4 5|6 7 8|9 10 11
    f32[6,2] in 4 tiles    0 1 2 3|4 5 6 7|8 9 10 11|      elements between unlike tile edges move: 3; 6, 7; ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.broadcast_dims import broadcast_dims_after_reshape, one_slice_of
from hlosharding.partitioner.choice import ReshapePlan
from hlosharding.partitioner.context import Context, PlanContext
from hlosharding.partitioner.factors import Places
from hlosharding.partitioner.iteration_space import untile
from hlosharding.partitioner.prices import ROUNDING, Cost, Prices, first_cheapest
from hlosharding.partitioner.resharding import array_of, local_shape, reshard, to_wanted
from hlosharding.partitioner.value import AnyValue, Value, ValuePlace
from hlosharding.reshard import BatchedTransfer, Region, layout_of, plan_batched_transfer
from hlosharding.sharding import (
    REPLICATED,
    HloSharding,
    is_local_reshape,
    propagate_through_reshape,
    reshape_runs,
    uneven_dims,
    without_partials,
)

Dims = tuple[int, ...]


Pair = tuple[HloSharding, HloSharding]
"""(operand sharding, result sharding)"""


def reshape(context: Context, inst: Instruction) -> AnyValue:
    """The cheapest of: the result's tiling carried back, the operand's carried on, elements moved between both, or all
    gathered.  Planned where the operand lies by now."""
    value, shape = array_of(context, inst.operands[0]), inst.shape
    wanted = context.wanted_leaves(inst)[0]
    plan = context.plans[inst] = plan_reshape(context, inst, [value.place], wanted)
    [source], [target] = plan.operands, plan.results
    moved = reshard(context, value, source, "operand of a reshape")
    if plan.transfer is not None:
        return _write_transfer(context, inst, moved, target, plan.transfer)
    local = context.emitter.reshape(moved.local, local_shape(context, shape, target).dims)
    known = value.broadcast_dims and broadcast_dims_after_reshape(value.shape.dims, shape.dims, value.broadcast_dims)
    kind = value.reduce_kind if source is value.sharding else None
    made = Value(local, shape, target, kind, broadcast_dims=known)
    return made if target is wanted else to_wanted(context, made, wanted)


def _write_transfer(
    context: Context, inst: Instruction, value: Value, target: HloSharding, transfer: BatchedTransfer
) -> Value:
    """Where each group of dims is one line of elements on both sides: the elements between unlike tile edges move."""
    emitter = context.emitter
    lines = [
        math.prod(value.local.shape.dims[d] for d in here)
        for here, _ in reshape_runs(value.shape.dims, inst.shape.dims)
    ]
    with emitter.because("elements moved by a reshape"):
        local = transfer.pieces.emit(emitter, emitter.reshape(value.local, lines))
    return Value(emitter.reshape(local, target.tile_shape(inst.shape.dims)), inst.shape, target)


def _transfer_between(
    prices: Prices, shape: Shape, source: HloSharding, result: Shape, target: HloSharding
) -> BatchedTransfer | None:
    """How elements get from the operand's tiles to the result's.

    None where a tile is not one line of elements in each group of dims that the reshape maps onto each other.
    """
    if 0 in shape.dims or {"manual", "unreduced"} & {*source.subgroup_types, *target.subgroup_types}:
        return None
    groups, n = reshape_runs(shape.dims, result.dims), prices.machine.num_devices
    before = layout_of(source, shape.dims, n).flatten(tuple(here for here, _ in groups))
    after = layout_of(target, result.dims, n).flatten(tuple(there for _, there in groups))
    if before is None or after is None:
        return None
    flat = shape.with_dims(before.dims)
    whole = (Region.whole(flat.dims),)
    return plan_batched_transfer(whole, (before,), after, flat, machine=prices.machine, objective=prices.objective)


def plan_reshape(context: PlanContext, inst: Instruction, operands: Places, wanted: HloSharding | None) -> ReshapePlan:
    """The shardings of operand and result, the price, and the transfer where elements move between; memoised.

    No term of a sum is wanted: elements come from a whole array, of which a tile has the shape of a term, but is none.
    """
    [value], shape = operands, inst.shape
    wanted = None if wanted is None else without_partials(wanted)
    key = (shape, None if wanted is None else wanted.uid, *value.key)
    plans = context.decisions.reshapes
    if key not in plans:
        plans[key] = _cheapest(context.prices, value, shape, wanted)
    return plans[key]


def _cheapest(prices: Prices, value: ValuePlace, shape: Shape, wanted: HloSharding | None) -> ReshapePlan:
    def seconds(pair: Pair) -> float:
        result = prices.reshard_seconds(*_result_reshard(value, shape, pair, wanted), None)
        return prices.move_seconds(value, pair[0]) + result + _copy_seconds(prices, shape, pair[1])

    def least(pair: Pair) -> float:
        result = prices.least_reshard_seconds(*_result_reshard(value, shape, pair, wanted))
        return prices.least_move_seconds(value, pair[0]) + result + _copy_seconds(prices, shape, pair[1]) * ROUNDING

    best = first_cheapest([*_pairs(value.whole_sharding, value.shape.dims, shape.dims, wanted)], least, seconds)
    local = ReshapePlan(best[:1], best[1:], seconds(best))
    # Where nothing is paid but the copy nothing moves, so that no transfer need be planned.
    is_free = local.price <= _copy_seconds(prices, shape, best[1])
    if wanted is None or value.is_remade or is_free:
        return local
    moved = _plan_transfer(prices, value, shape, wanted)
    return local if moved is None or moved.price >= local.price else moved


def _result_reshard(
    value: ValuePlace, shape: Shape, pair: Pair, wanted: HloSharding | None
) -> tuple[Shape, HloSharding, HloSharding]:
    """What has to be resharded once tiles are reshaped."""
    known = broadcast_dims_after_reshape(value.shape.dims, shape.dims, value.broadcast_dims)
    return one_slice_of(shape, pair[1], wanted or pair[1], known)


def _plan_transfer(prices: Prices, value: ValuePlace, shape: Shape, wanted: HloSharding) -> ReshapePlan | None:
    """A partial result is reduced, then elements move to the tiles that are wanted; None where they cannot."""
    own = value.whole_sharding
    if "tiled" not in (own.kind, wanted.kind):
        return None
    transfer = _transfer_between(prices, value.shape, own, shape, wanted)
    if transfer is None:
        return None
    sent = prices.comparable_seconds(Cost(transfer.mean_bytes, transfer.seconds))
    seconds = prices.move_seconds(value, own) + sent + _copy_seconds(prices, shape, wanted)
    # Tiles of both may hold the same elements though propagation carries neither tiling to the other: nothing is sent.
    is_local = is_local_reshape(own, value.shape.dims, wanted, shape.dims)
    return ReshapePlan((own,), (wanted,), seconds, None if is_local else transfer)


def _copy_seconds(prices: Prices, shape: Shape, sharding: HloSharding) -> float:
    """Seconds to write one tile of the result."""
    tile = shape.with_dims(sharding.tile_shape(shape.dims))
    return prices.compute_seconds(0, tile.byte_size, False)


def _pairs(source: HloSharding, dims: Dims, result_dims: Dims, wanted: HloSharding | None) -> Iterator[Pair]:
    """Pairs that reshape locally: the one from what is wanted first, for on a tie the first is taken."""
    if wanted is not None and wanted.kind in ("tiled", "replicated"):
        for pair in _local_pairs(wanted, result_dims, dims):
            yield pair[1], pair[0]
    if source.kind in ("tiled", "replicated"):
        yield from _local_pairs(source, dims, result_dims)
    yield REPLICATED, REPLICATED


@lru_cache(maxsize=1 << 14)
def _local_pairs(sharding: HloSharding, dims: Dims, other_dims: Dims) -> tuple[Pair, ...]:
    """Pairs that start from `sharding`: as it is, without the tiles that do not get through, or, where neither is
    local, without uneven tiles."""
    found: list[Pair] = []
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
