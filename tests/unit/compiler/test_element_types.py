"""Every element type that JAX runs on CPU goes through a partitioned program, and comes out as from one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs

TYPES = (
    "bool int8 uint8 int16 int32 uint32 int64 float16 bfloat16 float32 float64 complex64 complex128 int4 uint4"
    " float8_e4m3fn float8_e5m2"
).split()
EXACT = "biu"
SLACK = {1: 0.3, 2: 2e-2}


def moved(x: jax.Array) -> Any:
    """Nothing is computed: bits arrive as they left."""
    places = jnp.array([3, 1, 7])
    joined = jnp.concatenate([x[1:7, ::2], x[:3, :4]])
    return x.T.reshape(4, 16), joined, jnp.roll(x, 3, 0), x[places], x.at[places].set(x[:3]), x == x.T


def reduced(x: jax.Array) -> Any:
    """Sums and products over split dims, in the type's own arithmetic."""
    return (
        x.sum(0),
        x.prod(1),
        jnp.cumsum(x, 0),
        lax.dot(x, x),
        lax.conv(x[None, None], x[None, None, :3, :3], (1, 1), "SAME"),
    )


def ordered(x: jax.Array) -> Any:
    """Order along split dims."""
    return jnp.sort(x, 0), jnp.argmax(x, 1), lax.top_k(x, 3)[0]


def bits(x: jax.Array) -> Any:
    """Seen as bytes: a new dim where there are several."""
    return lax.bitcast_convert_type(x, jnp.uint8)


def values(name: str) -> np.ndarray:
    dtype, seed = np.dtype(getattr(ml_dtypes, name, name)), np.random.default_rng(0)
    if "int" in name or name == "bool":
        low, high = (0, 2) if name == "bool" or name[0] == "u" else (-2, 2)
        return seed.integers(low, high, (8, 8)).astype(dtype)
    real = seed.normal(size=(8, 8))
    return (real + 1j * seed.normal(size=(8, 8)) if name[0] == "c" else real.astype(np.float32)).astype(dtype)


# With the types on which JAX itself has no such op.
PROGRAMS: dict[Callable[[jax.Array], Any], tuple[str, ...]] = {
    moved: (),
    reduced: ("bool", "int4", "uint4"),
    ordered: ("complex64", "complex128"),
    bits: ("bool", "complex64", "complex128", "int4", "uint4"),
}


@pytest.mark.parametrize(
    ("program", "name"), [(p, name) for p, without in PROGRAMS.items() for name in TYPES if name not in without]
)
def test_results_are_those_of_one_device(mesh_2x4: Mesh, program: Callable[[jax.Array], Any], name: str) -> None:
    with jax.enable_x64(name.endswith(("64", "128"))):
        x = values(name)
        found = jax.tree.leaves(hs.jit(program, mesh=mesh_2x4, in_shardings=P("data", "model"))(x), is_leaf=is_array)
        for got, want in zip(found, jax.tree.leaves(jax.jit(program)(x)), strict=True):
            close(np.asarray(got), np.asarray(want))


def is_array(value: Any) -> bool:
    return hasattr(value, "__array__")


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind in EXACT or "int" in want.dtype.name:
        assert np.array_equal(got, want)
        return
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    slack = SLACK.get(want.dtype.itemsize, 1e-5)
    largest = float(np.abs(want.astype(wide)).max(initial=1.0))
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=slack, atol=slack * largest)
