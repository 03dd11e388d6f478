"""What a reshard takes at least, whatever the plan: elements that devices receive, and from how many others.

Floor: reshard.  Knows layouts; nothing of steps or prices.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hlosharding.reshard.layout import Dims, Layout, Table, layout_of, least_mean_elements, missing_elements
from hlosharding.sharding import HloSharding


class Least(NamedTuple):
    """What no plan can do without."""

    elements: float
    """That a device receives, mean over devices."""
    reach: int
    """How many devices' data some device ends up with, its own included."""
    busiest: float
    """Elements that some device receives."""


def least_of(source: HloSharding, target: HloSharding, dims: Dims, num_devices: int) -> Least:
    """The least between two leaf shardings of an array of global `dims`.  Remembered for all sizes that are cut alike.

    Tiles of 4 elements to one tile of 8: a device lacks 4, and hears from one other.

    >>> least_of(HloSharding.parse("{devices=[2]<=[2]}"), HloSharding.replicate(), (8,), 2)
    Least(elements=4.0, reach=2, busiest=4.0)
    """
    block = common_block(source, target, dims)
    found = _least(source, target, tuple(size // unit for size, unit in zip(dims, block, strict=True)), num_devices)
    times = math.prod(block)
    return Least(found.elements * times, found.reach, found.busiest * times)


@lru_cache(maxsize=16384)
def _least(source: HloSharding, target: HloSharding, dims: Dims, num_devices: int) -> Least:
    first, last = layout_of(source, dims, num_devices), layout_of(target, dims, num_devices)
    met, own = _tiles_met(first, last)
    if first.num_partial_sums == last.num_partial_sums:
        missing = missing_elements(first, last)
        return Least(float(missing.mean()), 1 + int((met - own).max()), float(missing.max()))
    mean = least_mean_elements(first, last)
    sums = max(1, first.num_partial_sums // last.num_partial_sums)
    return Least(mean, max(1, sums * int(met.max())), mean)


def _tiles_met(source: Layout, target: Layout) -> tuple[Table, Table]:
    """[device]: how many of the source's tiles its target tile meets; 1 where its own is one of them, else 0."""
    (low, high), (have_low, have_high) = target.bounds, source.bounds
    tile = np.maximum(np.array(source.tile, np.int64), 1)
    met = np.multiply.reduce(np.maximum(-(-high // tile) - low // tile, 0), axis=1)
    shared = np.logical_and.reduce(np.minimum(high, have_high) > np.maximum(low, have_low), axis=1)
    return met * target.has_data(), shared.astype(np.int64)


def common_block(source: HloSharding, target: HloSharding, dims: Dims) -> Dims:
    """The largest blocks of elements that no tile edge of two leaf shardings cuts.

    With blocks for elements the two lie in the same tiles: what is true of those is true of all sizes of a block.

    >>> rows, columns = HloSharding.parse("{devices=[4,1]<=[4]}"), HloSharding.parse("{devices=[1,4]<=[4]}")
    >>> common_block(rows, columns, (20, 10))
    (5, 1)
    """
    if source.kind != "tiled" and target.kind != "tiled":
        return tuple(max(1, size) for size in dims)
    counts = [sharding.data_dims or (1,) * len(dims) for sharding in (source, target)]
    return tuple(
        max(1, math.gcd(size, -(-size // have), -(-size // want)))
        for size, have, want in zip(dims, *counts, strict=True)
    )
