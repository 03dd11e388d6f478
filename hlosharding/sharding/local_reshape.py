"""May each device reshape its own tile, and which runs of dims does a reshape join or split?

Floor: sharding.
"""

from __future__ import annotations

import math
from functools import lru_cache

from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.tile_assignment import Dims


@lru_cache(maxsize=1 << 14)
def is_local_reshape(source: HloSharding, dims: Dims, target: HloSharding, result_dims: Dims) -> bool:
    """May each device reshape its own tile?"""
    if source.kind == "replicated" and target.kind == "replicated":
        return True
    if source.kind != "tiled" or target.kind != "tiled" or 0 in dims:
        return False
    if source.total_num_tiles != target.total_num_tiles:
        return False
    for here, there in reshape_runs(dims, result_dims):
        one, two = _long(source, dims, here), _long(target, result_dims, there)
        if len(one) == len(two) == 1 and dims[one[0]] == result_dims[two[0]]:
            if source.data_dims[one[0]] != target.data_dims[two[0]]:
                return False
        elif not (_even_run(source, dims, here) and _even_run(target, result_dims, there)):
            return False
    return _same_elements(source, dims, target, result_dims)


def _long(sharding: HloSharding, dims: Dims, run: Dims) -> Dims:
    """The dims of a run that hold more than one element, or tiles."""
    return tuple(d for d in run if dims[d] > 1 or sharding.data_dims[d] > 1)


def _even_run(sharding: HloSharding, dims: Dims, run: Dims) -> bool:
    return all(dims[d] % sharding.data_dims[d] == 0 for d in run)


def _same_elements(source: HloSharding, dims: Dims, target: HloSharding, result_dims: Dims) -> bool:
    """Does every device's tile hold the same elements before and after, in the same order?"""
    devices = source.total_num_tiles
    for here, there in reshape_runs(dims, result_dims):
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
def reshape_runs(dims: Dims, other: Dims) -> tuple[tuple[Dims, Dims], ...]:
    """Smallest runs of dims with equal products, majors first.

    >>> reshape_runs((6, 4, 5), (2, 12, 5))
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
