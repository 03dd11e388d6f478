"""Pieces and sums of arrays of which one lies as stacked tiles, though a jax array could say it."""

from __future__ import annotations

import jax
import numpy as np

from hlosharding.executor import ShardedArray, lay_out, sharded_array
from hlosharding.schedule.execution.array_ops import add_arrays, concat_arrays, split_array
from hlosharding.schedule.value_type import parse_type

KIND = parse_type("f32[4,2] on {0-1} as {devices=[2,1]<=[2]}")
X = np.arange(8, dtype=np.float32).reshape(4, 2)


def both_ways() -> tuple[object, ShardedArray]:
    devices = jax.devices()[:2]
    return lay_out(X, KIND.sharding, devices), sharded_array(X, KIND.sharding, devices)


def test_a_sum_of_both() -> None:
    named, stacked = both_ways()
    assert not isinstance(named, ShardedArray)
    for arrays in ([named, stacked], [stacked, named, named]):
        assert np.array_equal(np.asarray(add_arrays(arrays, KIND, jax.devices()[:2])), len(arrays) * X)


def test_pieces_are_the_same_and_join() -> None:
    for dim in (0, 1):
        pieces = [split_array(array, KIND, dim, 2) for array in both_ways()]
        for one, other in zip(*pieces, strict=True):
            assert np.array_equal(np.asarray(one), np.asarray(other))
        kind = parse_type(f"f32[{'2,2' if dim == 0 else '4,1'}] on {{0-1}} as {{devices=[2,1]<=[2]}}")
        joined = concat_arrays([pieces[0][0], pieces[1][1]], kind, dim, jax.devices()[:2])
        assert np.array_equal(np.asarray(joined), X)
