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
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.projection import REPLICATED, local_shape_dims, uneven_dims, untile
from hlosharding.partitioner.value import AnyValue, Value
from hlosharding.sharding import HloSharding, propagate_through_reshape

Dims = tuple[int, ...]


def reshape(context: Context, inst: Instruction) -> AnyValue:
    """The cheapest of: the result's tiling carried back, the operand's carried on, each without what hinders."""
    value = context.array(inst.operands[0])
    wanted = context.wanted_leaves(inst)[0]
    source, target = choose_reshape(context, value, inst.shape, wanted)
    moved = context.reshard(value, source, "operand of a reshape")
    local = context.emitter.reshape(moved.local, local_shape_dims(target, inst.shape.dims))
    made = Value(local, inst.shape, target, value.reduce_kind if source is value.sharding else None)
    return context.settle(made, wanted)


def choose_reshape(
    context: Context, value: Value, shape: Shape, wanted: HloSharding | None
) -> tuple[HloSharding, HloSharding]:
    """(operand sharding, result sharding) of the local reshape; memoised."""
    key = (value.shape, shape, value.sharding, value.reduce_kind, value.remake is None, wanted)
    found = context.decisions.reshapes.get(key)
    if found is None:
        prices = context.prices

        def price(pair: tuple[HloSharding, HloSharding]) -> float:
            source, target = pair
            work = shape.with_dims(local_shape_dims(target, shape.dims)).byte_size
            return (
                context.price(value, source)
                + prices.move(shape, target, wanted or target, None)
                + prices.work(0, work, False)
            )

        found = min(_pairs(value.whole_sharding, value.shape.dims, shape.dims, wanted), key=price)
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
        if is_local(here, dims, there, other_dims):
            found.append((here, there))
    if not found:
        even = untile(sharding, uneven_dims(sharding, dims))
        carried = propagate_through_reshape(dims, other_dims, even).meaning
        back = propagate_through_reshape(other_dims, dims, carried).meaning
        if is_local(back, dims, carried, other_dims):
            found.append((back, carried))
    return tuple(found)


def is_local(source: HloSharding, dims: Dims, target: HloSharding, result_dims: Dims) -> bool:
    """May each device reshape its own tile?"""
    if source.kind == "replicated" and target.kind == "replicated":
        return True
    if source.kind != "tiled" or target.kind != "tiled" or 0 in dims:
        return False
    if source.total_num_tiles != target.total_num_tiles:
        return False
    for here, there in groups(dims, result_dims):
        if len(here) == len(there) == 1 and dims[here[0]] == result_dims[there[0]]:
            if source.data_dims[here[0]] != target.data_dims[there[0]]:
                return False
        elif not (_even_run(source, dims, here) and _even_run(target, result_dims, there)):
            return False
    return _same_elements(source, dims, target, result_dims)


def _even_run(sharding: HloSharding, dims: Dims, run: Dims) -> bool:
    return all(dims[d] % sharding.data_dims[d] == 0 for d in run)


def _same_elements(source: HloSharding, dims: Dims, target: HloSharding, result_dims: Dims) -> bool:
    """Does every device's tile hold the same elements before and after, in the same order?"""
    devices = source.total_num_tiles
    for here, there in groups(dims, result_dims):
        one, two = tuple(dims[d] for d in here), tuple(result_dims[d] for d in there)
        for device in range(devices):
            before, after = source.tile_index(device), target.tile_index(device)
            a = _run_elements(one, tuple(source.data_dims[d] for d in here), tuple(before[d] for d in here))
            b = _run_elements(two, tuple(target.data_dims[d] for d in there), tuple(after[d] for d in there))
            if a != b:
                return False
    return True


@lru_cache(maxsize=1 << 14)
def _run_elements(dims: Dims, ways: Dims, index: Dims) -> tuple[tuple[int, int], ...]:
    """The tile as (size, stride) runs of the flattened dims with its first element: equal for equal element orders."""
    stride, first, runs = 1, 0, []
    for size, parts, place in reversed(list(zip(dims, ways, index, strict=True))):
        tile = -(-size // parts)
        first += place * tile * stride
        if tile > 1:
            if runs and runs[-1][0] * runs[-1][1] == stride:
                runs[-1] = (runs[-1][0] * tile, runs[-1][1])
            else:
                runs.append((tile, stride))
        stride *= size
    return (*runs, (0, first))


@lru_cache(maxsize=1 << 14)
def groups(dims: Dims, other: Dims) -> tuple[tuple[Dims, Dims], ...]:
    """Smallest runs of dims with equal products, majors first.

    >>> groups((6, 4, 5), (2, 12, 5))
    (((0, 1), (0, 1)), ((2,), (2,)))
    """
    found, i, j = [], 0, 0
    while i < len(dims) or j < len(other):
        here, there = [], []
        left, right = 1, 1
        while True:
            if (left <= right and i < len(dims)) or j == len(other):
                if i == len(dims):
                    break
                here.append(i)
                left *= dims[i]
                i += 1
            else:
                there.append(j)
                right *= other[j]
                j += 1
            if left == right and here and there:
                break
        found.append((tuple(here), tuple(there)))
    assert math.prod(dims) == math.prod(other)
    return tuple(found)
