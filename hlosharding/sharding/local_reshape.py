"""May each device reshape its own tile, and which runs of dims does a reshape join or split?

Floor: sharding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.tile_assignment import Dims
from hlosharding.sharding.tiles import tile_indices


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
        # A dim that stays what it is may be uneven: its tiles hold the same rows before and after, padding included.
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
    before, after = tile_indices(source, len(dims), devices), tile_indices(target, len(result_dims), devices)
    for here, there in reshape_runs(dims, result_dims):
        one, first = _run_elements([dims[d] for d in here], [source.data_dims[d] for d in here])
        two, second = _run_elements([result_dims[d] for d in there], [target.data_dims[d] for d in there])
        if one != two or (before[:, list(here)] @ first != after[:, list(there)] @ second).any():
            return False
    return True


def _run_elements(dims: Sequence[int], ways: Sequence[int]) -> tuple[list[tuple[int, int]], npt.NDArray[np.int64]]:
    """A tile as (size, stride) runs of the flattened dims, and by dim how far tiles lie apart.

    Equal for equal element orders, where the first elements are equal.
    """
    stride, runs, steps = 1, list[tuple[int, int]](), list[int]()
    for size, parts in reversed(list(zip(dims, ways, strict=True))):
        tile = -(-size // parts)
        steps.append(tile * stride)
        if tile > 1:
            if runs and runs[-1][0] * runs[-1][1] == stride:
                runs[-1] = (runs[-1][0] * tile, runs[-1][1])
            else:
                runs.append((tile, stride))
        stride *= size
    return runs, np.array(steps[::-1], np.int64)


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
