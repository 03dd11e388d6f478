"""Indices of any integer type along split dims: HLO clamps them as the numbers they are, whatever type we count in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs

X = np.arange(800, dtype=np.float32).reshape(400, 2)
STARTS = {
    "int8": [-128, -1, 127], "uint8": [3, 255], "int16": [-5, 3000], "uint16": [65535], "uint32": [3, 2**31, 2**32 - 1],
    "int32": [-(2**31), 2**31 - 1],
}  # fmt: skip


def clamped(start: int, count: int) -> int:
    return min(max(start, 0), len(X) - count)


@pytest.mark.parametrize("start", [np.dtype(kind).type(s) for kind, starts in STARTS.items() for s in starts], ids=repr)
def test_slices_and_updates_start_where_hlo_says(start: Any, mesh_2x4: Mesh) -> None:
    def both(x: Any, i: Any) -> Any:
        zero = jnp.zeros((), i.dtype)
        rows = lax.dynamic_slice(x, (i, zero), (2, 2), allow_negative_indices=False)
        return rows, lax.dynamic_update_slice(x, -x[:3], (i, zero), allow_negative_indices=False)

    rows, updated = hs.jit(both, mesh=mesh_2x4, in_shardings=(P("data"), None))(X, start)
    first, wanted = clamped(int(start), 2), X.copy()
    assert np.array_equal(rows, X[first : first + 2])
    first = clamped(int(start), 3)
    wanted[first : first + 3] = -X[:3]
    assert np.array_equal(updated, wanted)


def test_starts_of_several_types() -> None:
    """StableHLO and `jax.lax` take starts of one type, HLO of any."""
    module = hs.load("""HloModule m, num_partitions=8
ENTRY e {
  x = f32[400,6] parameter(0), sharding={devices=[8,1]<=[8]}
  i = u8[] parameter(1), sharding={replicated}
  j = s32[] parameter(2), sharding={replicated}
  ROOT d = f32[2,4] dynamic-slice(x, i, j), dynamic_slice_sizes={2,4}, sharding={replicated}
}""")
    x = np.arange(2400, dtype=np.float32).reshape(400, 6)
    local = hs.partition(module)
    for run in (local.run, local.run_reference):
        assert np.array_equal(run(x, np.uint8(255), np.int32(7)), x[255:257, 2:6])


@pytest.mark.parametrize("name", ["int8", "bfloat16", "float16", "float8_e4m3fn"])
def test_counting_rounds_once(name: str, mesh_2x4: Mesh) -> None:
    count = 4096
    f = hs.jit(lambda: lax.iota(jnp.dtype(name), count), mesh=mesh_2x4, out_shardings=P(("data", "model")))
    wanted = np.arange(count).astype(jnp.dtype(name))
    assert np.array_equal(np.asarray(f()).astype(np.float32), wanted.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.int16])
def test_keys_of_random_numbers_are_sliced(kind: Any, mesh_2x4: Mesh) -> None:
    keys = jax.random.split(jax.random.key(0), 32).reshape(8, 4)
    f = hs.jit(lambda k, i: lax.dynamic_slice_in_dim(k, i, 2), mesh=mesh_2x4, in_shardings=(P("data"), None))
    assert (f(keys, kind(3)) == keys[3:5]).all()
