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


@pytest.mark.parametrize("count", [8, 7])
@pytest.mark.parametrize("spec", [P("data"), P("model"), None, "{devices=[8]7,6,5,4,3,2,1,0}"])
def test_arrays_of_keys_are_split(mesh: Mesh, spec: P | str | None, count: int) -> None:
    def draw(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = hs.with_sharding(keys[::-1], "{devices=[4,2]<=[8] last_tile_dim_replicate}")
        return jax.vmap(jax.random.fold_in, (0, None))(keys, 1), jax.vmap(lambda k: jax.random.normal(k, (3,)))(keys)

    keys = jax.random.split(jax.random.key(0), count)
    got, numbers = hs.jit(draw, mesh=mesh, in_shardings=(spec,), out_shardings=(spec, P()))(keys)
    next_keys, wanted = draw(keys)
    assert got.dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(got), jax.random.key_data(next_keys))
    np.testing.assert_allclose(np.asarray(numbers), wanted, rtol=1e-6)


def test_wide_numpy_arguments_are_cut_although_the_program_is_wide_inside(mesh: Mesh) -> None:
    """Random bits count in 64 bits whatever JAX is set to; what numpy made is cut all the same, as JAX does."""

    def noisy(key: jax.Array, labels: jax.Array) -> jax.Array:
        return labels + jax.random.randint(key, (4096,), 0, 3)

    labels = np.arange(4096, dtype=np.int64)
    step = hs.jit(noisy, mesh=mesh, in_shardings=(None, P("data")))
    np.testing.assert_array_equal(np.asarray(step(jax.random.key(0), labels)), noisy(jax.random.key(0), labels))


@pytest.mark.parametrize("kind", [jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit])
@pytest.mark.parametrize(("sizes", "names"), [((2, 4), ("data", "model")), ((8,), ("other",))])
def test_a_mesh_of_the_context_does_not_disturb(
    mesh: Mesh, sizes: tuple[int, ...], names: tuple[str, ...], kind: jax.sharding.AxisType
) -> None:
    x = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    turned = hs.jit(lambda x: x[::-1] @ x, mesh=mesh, in_shardings=P("data", "model"))
    with jax.set_mesh(jax.make_mesh(sizes, names, axis_types=(kind,) * len(sizes))):
        np.testing.assert_allclose(np.asarray(turned(x)), x[::-1] @ x)


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
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        hs.jit(lambda x, n: x * n[0], mesh=mesh, static_argnums=1)(X, [3])
    with pytest.raises(hs.TraceError, match="of type <class 'str'>"):
        hs.jit(lambda x: x, mesh=mesh)("a")


def test_a_loop_that_ends_when_all_elements_say_so(mesh: Mesh) -> None:
    """Copies of the elements are filled from different devices; all devices go round equally often all the same."""
    x = np.linspace(0.1, 3, 63, dtype=np.float32).reshape(3, 3, 7)
    specs = ("{devices=[2,1,2,2]4,7,3,5,1,2,0,6 last_tile_dim_replicate}", P(None, None, "data"))
    got = hs.jit(jax.lax.igamma, mesh=mesh, in_shardings=specs)(x + 1, x)
    np.testing.assert_allclose(np.asarray(got), jax.lax.igamma(x + 1, x), rtol=1e-5)
