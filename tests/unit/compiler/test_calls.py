"""`hs.jit` called as people call `jax.jit`: keys, uneven results fed back, other transformations around it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs

X = np.arange(8.0, dtype=np.float32)


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def total(x: jax.Array) -> jax.Array:
    return jax.lax.with_sharding_constraint(x * 2, P("data")).sum()


def test_an_uneven_result_goes_back_in(mesh: Mesh) -> None:
    double = hs.jit(lambda x: 2 * x, mesh=mesh, in_shardings=P("data"), out_shardings=P("data"))
    once = double(np.arange(5.0, dtype=np.float32))
    assert isinstance(once, hs.ShardedArray)
    np.testing.assert_array_equal(np.asarray(double(once)), 4 * np.arange(5.0))


def test_keys_go_in_and_come_out(mesh: Mesh) -> None:
    key = jax.random.key(0)
    draw = hs.jit(lambda k: jax.random.normal(k, (8,)), mesh=mesh)
    np.testing.assert_array_equal(np.asarray(draw(key)), np.asarray(jax.random.normal(key, (8,))))
    parts = hs.jit(jax.random.split, mesh=mesh)(key)
    assert parts.dtype == key.dtype
    np.testing.assert_array_equal(jax.random.key_data(parts), jax.random.key_data(jax.random.split(key)))


@pytest.mark.parametrize(
    "use",
    [
        lambda f: jax.jit(lambda x: f(x) + 1)(X),
        lambda f: jax.grad(f)(X),
        lambda f: jax.vmap(f)(jnp.ones((3, 8))),
        lambda f: jax.lax.scan(lambda carry, _: (carry + f(X), None), 0.0, None, length=3)[0],
    ],
    ids=["jit", "grad", "vmap", "scan"],
)
def test_inside_other_transformations_it_is_jax(mesh: Mesh, use: Callable[..., jax.Array]) -> None:
    with jax.set_mesh(mesh):
        expected = use(jax.jit(total))
    np.testing.assert_allclose(use(hs.jit(total, mesh=mesh)), expected)


def test_static_arguments_count_from_either_end(mesh: Mesh) -> None:
    for number in (1, -1):
        scaled = hs.jit(lambda x, n: x * n, mesh=mesh, static_argnums=number)
        np.testing.assert_array_equal(scaled(X, 3), 3 * X)


def test_what_cannot_be_traced_is_named(mesh: Mesh) -> None:
    with pytest.raises(hs.TraceError, match="a static argument cannot be hashed"):
        hs.jit(lambda x, n: x * n[0], mesh=mesh, static_argnums=1)(X, [3])
    with pytest.raises(hs.TraceError, match="is str, neither array nor ShapeDtypeStruct"):
        hs.jit(lambda x: x, mesh=mesh)("a")
