"""`hs.jit` as a drop-in: the same calls and the same results as `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import HloShardingError, TraceError

X = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
W = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w)


def loss(x: jax.Array, w: jax.Array) -> jax.Array:
    return (layer(x, w) ** 2).mean()


def same(got: Any, want: Any) -> None:
    """Equal pytrees of close values of equal types."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (np.shape(a), a.dtype) == (np.shape(b), b.dtype)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-5, atol=1e-6)


class State(NamedTuple):
    w: Any
    step: Any


def update(state: State, batch: dict[str, Any], *, rate: float = 0.5) -> tuple[State, dict[str, Any]]:
    value, gradient = jax.value_and_grad(lambda w: loss(batch["x"], w))(state.w)
    return State(state.w - rate * gradient, state.step + 1), {"loss": value, "rows": [batch["x"].shape[0] * state.step]}


def test_pytrees_go_in_and_come_out(mesh_2x4: Mesh) -> None:
    state, batch = State(W, jnp.int32(3)), {"x": X}
    step = hs.jit(update, mesh=mesh_2x4, in_shardings=(State(P(None, "model"), P()), {"x": P("data")}))
    same(step(state, batch), jax.jit(update)(state, batch))


@pytest.mark.parametrize("value", [3, 3.0, 3j, True, np.float32(3), np.arange(8), jnp.arange(8.0)], ids=repr)
def test_what_is_made_of_python_numbers_alone_yields_to_other_types(mesh_2x4: Mesh, value: Any) -> None:
    def f(x: Any) -> Any:
        return x * 2, {"many": jnp.full((8, 4), 1.0) * x if np.ndim(x) == 0 else x, "strong": jnp.zeros(3)}

    ours, theirs = hs.jit(f, mesh=mesh_2x4), jax.jit(f)
    for found, wanted in ((ours(value), theirs(value)), (ours(ours(value)[0]), theirs(theirs(value)[0]))):
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
            assert a.weak_type == b.weak_type
            assert (a + np.float16(1)).dtype == (b + np.float16(1)).dtype


def test_weak_arrays_keep_their_sharding_and_cost_no_op(mesh_2x4: Mesh) -> None:
    ours = hs.jit(lambda x: jnp.full((8,), x), mesh=mesh_2x4, out_shardings=P("data"))
    found = ours(3.0)
    assert found.weak_type
    assert found.sharding.is_equivalent_to(NamedSharding(mesh_2x4, P("data")), 1)
    compiled = ours.trace(3.0).lower().partitioned.program.compile().compiled
    assert " convert(" not in compiled.as_text()


def test_keywords_and_defaults(mesh_2x4: Mesh) -> None:
    def f(x: jax.Array, *, scale: Any = 2.0, shift: Any = 0.0) -> jax.Array:
        return x * scale + shift

    ours, theirs = hs.jit(f, mesh=mesh_2x4, in_shardings=P("data")), jax.jit(f)
    same(ours(X), theirs(X))
    same(ours(X, scale=3.0), theirs(X, scale=3.0))
    same(ours(X, shift=X, scale=np.float32(1)), theirs(X, shift=X, scale=np.float32(1)))


@pytest.mark.parametrize("static", [1, (1,), -1, (-1,)])
def test_static_arguments_are_part_of_the_program(mesh_2x4: Mesh, static: int | tuple[int, ...]) -> None:
    seen = []

    def f(x: jax.Array, n: int) -> jax.Array:
        seen.append(n)
        return x * n if isinstance(n, int) else x

    step = hs.jit(f, mesh=mesh_2x4, in_shardings=P("data"), static_argnums=static)
    same(step(X, 2), X * 2)
    same(step(X, 3), X * 3)
    traces = len(seen)
    same(step(X, 2), X * 2)
    assert len(seen) == traces
    assert all(isinstance(n, int) for n in seen)


def test_static_numbers_beside_plain_ones_are_part_of_the_program(mesh_2x4: Mesh) -> None:
    """JAX keeps them as literals that are no arrays."""
    times = hs.jit(lambda x, y: x * y, static_argnums=1, mesh=mesh_2x4)
    assert [float(times(x, y)) for x in (2, 2.5) for y in (0, 1, 3)] == [0, 2, 6, 0, 2.5, 7.5]


def test_a_static_argument_must_be_hashable(mesh_2x4: Mesh) -> None:
    step = hs.jit(lambda x, names: x, mesh=mesh_2x4, static_argnums=1)
    with pytest.raises(ValueError, match="hash"):
        step(X, ["a"])


def test_a_donated_argument_is_gone(mesh_2x4: Mesh) -> None:
    step = hs.jit(lambda x, y: x + y, mesh=mesh_2x4, in_shardings=P("data"), out_shardings=P("data"), donate_argnums=0)
    given = jax.device_put(X, NamedSharding(mesh_2x4, P("data")))
    kept = jax.device_put(X, NamedSharding(mesh_2x4, P("data")))
    same(step(given, kept), 2 * X)
    assert given.is_deleted()
    assert not kept.is_deleted()


def test_donation_leaves_numpy_arrays_alone(mesh_2x4: Mesh) -> None:
    x = X.copy()
    step = hs.jit(lambda a: a + 1, mesh=mesh_2x4, in_shardings=P("data"), donate_argnums=(0,))
    same(step(x), X + 1)
    same(step(x), X + 1)
    assert np.array_equal(x, X)


def test_a_second_call_compiles_nothing(mesh_2x4: Mesh) -> None:
    traces = []

    def f(x: jax.Array) -> jax.Array:
        traces.append(1)
        return x + 1

    step = hs.jit(f, mesh=mesh_2x4, in_shardings=P("data"))
    step(X)
    once = len(traces)
    step(X + 1)
    step(jnp.asarray(X))
    assert len(traces) == once
    step(X[:4])
    assert len(traces) > once
    more = len(traces)
    step(X.astype(np.int32))
    assert len(traces) > more
    step.clear_cache()
    same(step(X), X + 1)


def test_python_numbers_are_weak(mesh_2x4: Mesh) -> None:
    def f(x: jax.Array, s: Any) -> jax.Array:
        return x * s

    half = X.astype(jnp.bfloat16)
    ours, theirs = hs.jit(f, mesh=mesh_2x4, in_shardings=(P("data"), None)), jax.jit(f)
    for number in (2, 2.5, True):
        same(ours(half, number), theirs(half, number))
    same(ours(half, np.float32(2)), theirs(half, np.float32(2)))


def test_outputs_that_are_no_computation(mesh_2x4: Mesh) -> None:
    def f(x: jax.Array, y: jax.Array) -> Any:
        return {"same": x, "number": 3, "nothing": None, "twice": (x, x), "fixed": jnp.arange(5)}

    same(hs.jit(f, mesh=mesh_2x4, in_shardings=P("data"))(X, W), jax.jit(f)(X, W))


def test_a_function_of_nothing(mesh_2x4: Mesh) -> None:
    same(hs.jit(lambda: jnp.arange(16.0), mesh=mesh_2x4)(), jnp.arange(16.0))


def test_unused_arguments_are_taken(mesh_2x4: Mesh) -> None:
    f = hs.jit(lambda a, b, c: b + 1, mesh=mesh_2x4)
    same(f(X, W, {"z": X}), W + 1)


def test_the_function_keeps_its_name(mesh_2x4: Mesh) -> None:
    assert hs.jit(layer, mesh=mesh_2x4).__name__ == "layer"


# Inside JAX's own transformations


def transformations() -> dict[str, Callable[[Callable[..., Any]], Any]]:
    xs = np.stack([X, X + 1, X - 1])
    return {
        "jit": lambda f: jax.jit(lambda x: f(x, W) + 1)(X),
        "grad": lambda f: jax.grad(lambda w: f(X, w).sum())(W),
        "value_and_grad": lambda f: jax.value_and_grad(lambda x: f(x, W).sum())(X),
        "vmap": lambda f: jax.vmap(f, in_axes=(0, None))(xs, W),
        "jvp": lambda f: jax.jvp(lambda x: f(x, W), (X,), (X,)),
        "scan": lambda f: jax.lax.scan(lambda c, x: (c + f(x, W).sum(), f(x, W)), 0.0, xs),
        "cond": lambda f: jax.jit(lambda p: jax.lax.cond(p, lambda: f(X, W), lambda: f(X, W) * 2))(True),
        "checkpoint": lambda f: jax.grad(lambda x: jax.checkpoint(f)(x, W).sum())(X),
        "eval_shape": lambda f: jax.jit(f).eval_shape(X, W).shape[0] * jnp.ones(()),
        "closed-over tracer": lambda f: jax.grad(lambda s: (f(X, W) * s).sum())(2.0),
        "concrete inside jit": lambda f: jax.jit(lambda s: f(X, W) * s)(2.0),
    }


@pytest.mark.parametrize("name", list(transformations()))
def test_inside_a_transformation_results_are_jaxs(mesh_2x4: Mesh, name: str) -> None:
    ours = hs.jit(layer, mesh=mesh_2x4, in_shardings=(P("data"), P(None, "model")))
    transform = transformations()[name]
    same(transform(ours), transform(jax.jit(layer)))


def test_a_function_may_close_over_a_tracer(mesh_2x4: Mesh) -> None:
    def through(jit: Callable[[Any], Any]) -> Any:
        return jax.grad(lambda s: jit(lambda x: (x * s).sum())(X))(3.0)

    same(through(lambda f: hs.jit(f, mesh=mesh_2x4, in_shardings=P("data"))), through(jax.jit))


def test_hs_jit_of_a_function_that_transforms(mesh_2x4: Mesh) -> None:
    f = jax.vmap(jax.grad(lambda x, w: loss(x[None], w), argnums=1), in_axes=(0, None))
    same(hs.jit(f, mesh=mesh_2x4, in_shardings=(P("data"), P()))(X, W), jax.jit(f)(X, W))


def test_hs_jit_inside_hs_jit(mesh_2x4: Mesh) -> None:
    inner = hs.jit(layer, mesh=mesh_2x4)
    outer = hs.jit(lambda x, w: inner(x, w).sum(), mesh=mesh_2x4, in_shardings=(P("data"), P()))
    same(outer(X, W), jax.jit(lambda x, w: layer(x, w).sum())(X, W))


# Shardings at the boundary


def test_outputs_carry_named_shardings(mesh_2x4: Mesh) -> None:
    f = hs.jit(layer, mesh=mesh_2x4, in_shardings=(P("data"), P(None, "model")), out_shardings=P("data", "model"))
    out = f(X, W)
    assert isinstance(out.sharding, NamedSharding)
    assert out.sharding.is_equivalent_to(NamedSharding(mesh_2x4, P("data", "model")), 2)
    assert out.sharding.mesh.axis_names == mesh_2x4.axis_names


def test_open_outputs_take_what_suits(mesh_2x4: Mesh) -> None:
    out = hs.jit(layer, mesh=mesh_2x4, in_shardings=(P("data"), P(None, "model")))(X, W)
    assert out.sharding.is_equivalent_to(NamedSharding(mesh_2x4, P("data", "model")), 2)


def test_an_array_keeps_the_sharding_it_brings(mesh_2x4: Mesh) -> None:
    x = jax.device_put(X, NamedSharding(mesh_2x4, P("model")))
    out = hs.jit(lambda a: a * 2, mesh=mesh_2x4)(x)
    assert out.sharding.is_equivalent_to(x.sharding, 2)


def test_an_output_feeds_the_next_call(mesh_2x4: Mesh) -> None:
    f = hs.jit(jnp.sin, mesh=mesh_2x4, in_shardings=P("data"), out_shardings=P("data"))
    same(f(f(X)), jnp.sin(jnp.sin(X)))


UNEVEN = np.arange(35, dtype=np.float32).reshape(7, 5)


def test_uneven_outputs_are_sharded_arrays_that_feed_back(mesh_2x4: Mesh) -> None:
    f = hs.jit(lambda x: x * 2 + 1, mesh=mesh_2x4, in_shardings=P("data", "model"), out_shardings=P("data", "model"))
    once = f(UNEVEN)
    assert isinstance(once, hs.ShardedArray)
    assert once.shape == (7, 5)
    assert once.dtype == np.float32
    assert np.array_equal(np.asarray(once), UNEVEN * 2 + 1)
    twice = f(once)
    assert np.array_equal(np.asarray(twice), (UNEVEN * 2 + 1) * 2 + 1)
    assert np.array_equal(np.asarray(f(twice)), ((UNEVEN * 2 + 1) * 2 + 1) * 2 + 1)
    assert twice.tile_shape == (4, 2)


def test_a_sharded_array_feeds_a_program_that_wants_another_layout(mesh_2x4: Mesh) -> None:
    f = hs.jit(lambda x: x * 2, mesh=mesh_2x4, in_shardings=P("data", "model"), out_shardings=P("data", "model"))
    g = hs.jit(lambda x: x - 1, mesh=mesh_2x4, in_shardings=P("model"), out_shardings=P())
    same(g(f(UNEVEN)), UNEVEN * 2 - 1)


def test_donating_a_sharded_array(mesh_2x4: Mesh) -> None:
    spec = P("data", "model")
    f = hs.jit(lambda x: x * 2, mesh=mesh_2x4, in_shardings=spec, out_shardings=spec, donate_argnums=0)
    once = f(UNEVEN)
    twice = f(once)
    assert np.array_equal(np.asarray(twice), UNEVEN * 4)


def test_other_device_orders_come_out_as_sharded_arrays(mesh_2x4: Mesh) -> None:
    f = hs.jit(lambda x: x + 1, mesh=mesh_2x4, in_shardings="{devices=[8,1]7,3,5,1,6,2,4,0}")
    out = f(X)
    assert np.array_equal(np.asarray(out), X + 1)
    assert np.array_equal(np.asarray(f(out)), X + 2)


# Marks inside the function


@pytest.mark.parametrize(
    "mark",
    [
        P("model", "data"),
        P(None, ("data", "model")),
        "{devices=[8,1]7,6,5,4,3,2,1,0}",
        "{devices=[2,4]3,1,0,2,7,5,4,6}",
        "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
        "{replicated}",
        hs.HloSharding.tile(np.arange(8).reshape(4, 2)),
        np.arange(8)[::-1].reshape(2, 4),
    ],
    ids=str,
)
def test_a_mark_inside_changes_no_value(mesh_2x4: Mesh, mark: Any) -> None:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.exp(hs.with_sharding(x * 2, mark)) @ w

    ours = hs.jit(f, mesh=mesh_2x4, in_shardings=(P("data"), P(None, "model")), out_shardings=P("data"))
    same(ours(X, W), jnp.exp(X * 2) @ W)
    same(jax.grad(lambda x: ours(x, W).sum())(X), jax.grad(lambda x: (jnp.exp(x * 2) @ W).sum())(X))


def test_a_mark_is_obeyed(mesh_2x4: Mesh) -> None:
    stage = hs.jit(lambda x: hs.with_sharding(x, "{devices=[1,8]7,6,5,4,3,2,1,0}") * 2, mesh=mesh_2x4).trace(X)
    found = [str(s) for s in stage.propagate().shardings.values() if s is not None]
    assert "{devices=[1,8]7,6,5,4,3,2,1,0}" in found


def test_values_that_are_to_be_sharded_alike(mesh_2x4: Mesh) -> None:
    def f(x: jax.Array, y: jax.Array) -> Any:
        x, y = hs.shard_alike(x * 2, y + 1)
        return x, y

    out = hs.jit(f, mesh=mesh_2x4, in_shardings=(P("data", "model"), None))(X, X)
    same(out, (X * 2, X + 1))
    assert out[0].sharding.is_equivalent_to(out[1].sharding, 2)


# Types


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.int8, np.uint32, np.bool_, np.complex64])
def test_types_of_all_widths(mesh_2x4: Mesh, dtype: Any) -> None:
    x = (np.arange(40).reshape(8, 5) % 3).astype(dtype)
    f = lambda a: (jnp.where(a == a[0], a, a[1]), a.sum())  # noqa: E731
    got, want = hs.jit(f, mesh=mesh_2x4, in_shardings=P("data", "model"))(x), jax.jit(f)(x)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(np.asarray(a), np.asarray(b))


def test_wide_programs_stay_wide(mesh_2x4: Mesh) -> None:
    x = np.arange(16, dtype=np.float64) * (1 + 2.0**-40)
    n = np.arange(16) + 2**40
    with jax.enable_x64(True):
        f = lambda a, b: (a * 3, b.sum())  # noqa: E731
        got, want = hs.jit(f, mesh=mesh_2x4, in_shardings=P("data"))(x, n), jax.jit(f)(x, n)
        assert got[0].dtype == np.float64
        assert got[1].dtype == np.int64
        assert np.array_equal(np.asarray(got[0]), np.asarray(want[0]))
        assert int(got[1]) == int(want[1])


def test_without_64_bits_numbers_are_cut_as_jax_cuts_them(mesh_2x4: Mesh) -> None:
    out = hs.jit(lambda a: a * 2, mesh=mesh_2x4, in_shardings=P("data"))(np.arange(16.0))
    assert out.dtype == np.float32


def test_random_keys(mesh_2x4: Mesh) -> None:
    def f(key: jax.Array, x: jax.Array) -> Any:
        a, b = jax.random.split(key)
        return jax.random.normal(a, x.shape) + x, b

    for key in (jax.random.PRNGKey(3), jax.random.key(3)):
        got = hs.jit(f, mesh=mesh_2x4, in_shardings=(P(), P("data")))(key, X)
        want = jax.jit(f)(key, X)
        np.testing.assert_allclose(np.asarray(got[0]), np.asarray(want[0]), rtol=1e-6)
        assert got[1].dtype == want[1].dtype
        assert np.array_equal(jax.random.uniform(got[1]), jax.random.uniform(want[1]))


# What is refused


@pytest.mark.parametrize(
    ("options", "arguments", "words"),
    [
        ({"in_shardings": P("nowhere")}, (X,), "nowhere"),
        ({"in_shardings": (P("data"), P())}, (X,), "in_shardings"),
        ({"in_shardings": P("data", "model", None)}, (X,), "dim"),
        ({"in_shardings": "{devices=[3]<=[3"}, (X,), "position|expected"),
        ({}, ("text",), "static_argnums"),
        ({}, (object(),), "static_argnums"),
    ],
)
def test_bad_input_is_refused_in_words(
    mesh_2x4: Mesh, options: dict[str, Any], arguments: tuple[Any, ...], words: str
) -> None:
    with pytest.raises((HloShardingError, ValueError), match=words):
        hs.jit(lambda x: x, mesh=mesh_2x4, **options)(*arguments)


def test_a_mesh_needs_devices() -> None:
    with pytest.raises(TraceError, match="an AbstractMesh has none"):
        hs.jit(lambda x: x, mesh=jax.sharding.AbstractMesh((16,), ("rows",)))


def test_an_error_of_the_function_is_the_functions_own(mesh_2x4: Mesh) -> None:
    def f(x: jax.Array) -> jax.Array:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        hs.jit(f, mesh=mesh_2x4)(X)


@pytest.mark.parametrize("spec", [None, P("data"), P(None, "model"), P(("data", "model"))], ids=str)
@pytest.mark.parametrize(
    ("shape", "function"),
    [
        ((7, 0), lambda x: x.astype(int).reshape(0, 3, 5)),
        ((7, 0), lambda x: x.reshape(0, 42, 101)),
        ((8, 0), lambda x: x.reshape(0)),
        ((0, 4), lambda x: jnp.repeat(x, 2, axis=0, total_repeat_length=0)),
        ((0, 4), lambda x: x[jnp.zeros(0, int)]),
        ((8, 4), lambda x: x[3:3].reshape(4, 0)),
        ((8, 4), lambda x: (x + 1, x[:, :0] @ jnp.ones((0, 4)), np.zeros((0, 3), np.int32))),
        ((0, 8), jax.nn.softmax),
        ((8, 0), lambda x: (x.sum(1), x @ x.T, x.T)),
        ((0, 8), lambda x: jnp.concatenate([x, jnp.ones((8, 8))])),
    ],
)
def test_arrays_without_elements(
    mesh_2x4: Mesh, shape: tuple[int, ...], function: Callable[[Any], Any], spec: P | None
) -> None:
    x = np.ones(shape, np.float32)
    found, wanted = hs.jit(function, mesh=mesh_2x4, in_shardings=spec)(x), jax.jit(function)(x)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(ours, theirs)
