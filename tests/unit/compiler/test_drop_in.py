"""What users of `jax.jit` rely on besides results: keywords, stages, Explicit meshes, settings, other values."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import TraceError

X = np.arange(64, dtype=np.float32).reshape(8, 8) / 64


@pytest.fixture(scope="module")
def explicit() -> Mesh:
    return jax.make_mesh((2, 4), ("data", "model"))


# Refusals


def test_what_xla_refuses_is_jaxs_error_and_ours(mesh_2x4: Mesh) -> None:
    step = hs.jit(lambda x: x + 1, mesh=mesh_2x4, in_shardings=P("data"), compiler_options={"no_such_option": 1})
    for kind in (jax.errors.JaxRuntimeError, hs.ExecutionError):
        with pytest.raises(kind, match="No such compile option: 'no_such_option'"):
            step(X)


def test_every_place_where_out_shardings_do_not_fit_is_told(mesh_2x4: Mesh) -> None:
    step = hs.jit(lambda x: {"a": x, "b": x}, mesh=mesh_2x4, out_shardings={"a": [None], "b": (None,)})
    with pytest.raises(ValueError, match=r"Mismatch details \(2 found\)(.|\n)*\['a'\](.|\n)*\['b'\]"):
        step(X)


@pytest.mark.parametrize("jit", [hs.jit, jax.jit])
def test_uncommitted_arrays_on_several_devices_are_refused(jit: Callable[..., Any], mesh_2x4: Mesh) -> None:
    from jax._src import array, core

    pieces = [jax.device_put(X, device) for device in mesh_2x4.devices.flat]
    everywhere = NamedSharding(mesh_2x4, P())
    uncommitted = array.ArrayImpl(core.ShapedArray(X.shape, X.dtype), everywhere, pieces, committed=False)
    with pytest.raises(NotImplementedError, match="uncommitted Array"):
        jit(lambda x: x)(uncommitted)


# Explicit meshes


def test_a_step_on_an_explicit_mesh_is_fed_its_own_results(explicit: Mesh) -> None:
    def step(p: jax.Array, b: jax.Array) -> jax.Array:
        return p - 0.1 * b

    p, batch = (jax.device_put(X, NamedSharding(explicit, P("data"))) for _ in range(2))
    ours, theirs = hs.jit(step), jax.jit(step)
    found, wanted = p, p
    for _ in range(3):
        found, wanted = ours(found, batch), theirs(wanted, batch)
        assert (jax.typeof(found), found.sharding) == (jax.typeof(wanted), wanted.sharding)
    np.testing.assert_allclose(found + batch, wanted + batch, rtol=1e-6)
    with jax.set_mesh(explicit):
        assert jax.typeof(ours(found, batch)) == jax.typeof(theirs(wanted, batch))


@pytest.mark.parametrize("given", ["argument", "context", "mesh="])
def test_the_mesh_may_come_from_anywhere(mesh_2x4: Mesh, given: str) -> None:
    function = hs.jit(lambda x: jnp.tanh(x @ x.T), mesh=mesh_2x4 if given == "mesh=" else None)
    x = jax.device_put(X, NamedSharding(mesh_2x4, P("data"))) if given == "argument" else X
    if given == "context":
        with jax.set_mesh(mesh_2x4):
            result = function(x)
    else:
        result = function(x)
    assert len(result.sharding.device_set) == 8
    np.testing.assert_allclose(result, np.tanh(X @ X.T), rtol=1e-5)


def test_without_a_mesh_there_is_nothing_to_split() -> None:
    result = hs.jit(lambda x: x + 1)(X)
    assert len(result.sharding.device_set) == 1
    assert not result.committed


# What a program is remembered by


def test_static_values_of_unlike_types_are_unlike_programs(mesh_2x4: Mesh) -> None:
    half = hs.jit(lambda x, n: x / 2 if isinstance(n, float) else x // 2, mesh=mesh_2x4, static_argnums=1)
    x = jnp.arange(3)
    assert (half(x, 2).dtype, half(x, 2.0).dtype) == (jnp.int32, jnp.float32)


@pytest.mark.parametrize(
    "changed",
    [
        lambda: jax.threefry_partitionable(False),
        lambda: jax.numpy_dtype_promotion("strict"),
        lambda: jax.default_matmul_precision("highest"),
    ],
    ids=["random numbers", "promotion", "precision"],
)
def test_settings_that_tracing_depends_on_make_other_programs(mesh_2x4: Mesh, changed: Callable[[], Any]) -> None:
    traced: list[Any] = []
    add = hs.jit(lambda x: (traced.append(x), x + len(traced))[1], mesh=mesh_2x4)
    for _ in range(2):
        np.testing.assert_array_equal(add(X), X + 1)
    with changed():
        np.testing.assert_array_equal(add(X), X + 2)
    np.testing.assert_array_equal(add(X), X + 1)


def test_a_call_that_is_remembered_does_not_ask_us(mesh_2x4: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    double = hs.jit(lambda x: {"twice": 2 * x}, mesh=mesh_2x4, in_shardings=P("data"))
    first = double(X)["twice"]

    def refuse(*_: Any) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(type(double._function), "trace", refuse)
    again = double(X)["twice"]
    np.testing.assert_array_equal(again, 2 * X)
    assert again.sharding == first.sharding


# Keywords


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnames": ("n",)},
        {"donate_argnames": ("x",)},
        {"keep_unused": True},
        {"inline": True},
        {"compiler_options": {}},
        {"static_argnums": None},
        {"donate_argnums": None},
    ],
    ids=str,
)
def test_keywords_of_jax_jit(mesh_2x4: Mesh, options: dict[str, Any]) -> None:
    add = hs.jit(lambda x, n=1: x + n, mesh=mesh_2x4, **options)
    np.testing.assert_array_equal(add(X), X + 1)
    np.testing.assert_array_equal(add(X, n=2), X + 2)


def test_a_static_position_is_known_by_its_name(mesh_2x4: Mesh) -> None:
    scale = hs.jit(lambda x, n: x * n if n > 1 else x, mesh=mesh_2x4, static_argnums=1)
    np.testing.assert_array_equal(scale(X, n=3), X * 3)


def test_donation_by_keyword(mesh_2x4: Mesh) -> None:
    x = jax.device_put(X, NamedSharding(mesh_2x4, P("data")))
    hs.jit(lambda x: x * 2, mesh=mesh_2x4, donate_argnums=0)(x=x)
    assert x.is_deleted()


def test_as_a_decorator_with_and_without_arguments_and_on_methods(mesh_2x4: Mesh) -> None:
    @hs.jit(mesh=mesh_2x4, donate_argnums=())
    def twice(x: jax.Array) -> jax.Array:
        return 2 * x

    class Model:
        @partial(hs.jit, mesh=mesh_2x4, static_argnums=0)
        def step(self, x: jax.Array) -> jax.Array:
            return x + 1

    np.testing.assert_array_equal(twice(X), 2 * X)
    np.testing.assert_array_equal(Model().step(X), X + 1)


# Stages


def test_stages_offer_what_jaxs_do(mesh_2x4: Mesh) -> None:
    s = NamedSharding(mesh_2x4, P("data"))
    ours, theirs = hs.jit(lambda x: x + 1, mesh=mesh_2x4, in_shardings=s), jax.jit(lambda x: x + 1, in_shardings=s)
    x = jnp.ones(8)
    assert ours.eval_shape(x) == theirs.eval_shape(x)
    assert str(ours.trace(x).jaxpr) == str(theirs.trace(x).jaxpr)
    assert ours.trace(x).out_info == theirs.trace(x).out_info
    lowered, wanted = ours.lower(x), theirs.lower(x)
    assert (lowered.out_info, lowered.in_tree, lowered.out_tree) == (wanted.out_info, wanted.in_tree, wanted.out_tree)
    assert lowered.as_text() == wanted.as_text()
    assert lowered.as_text(dialect="hlo") == wanted.as_text(dialect="hlo")
    assert str(lowered.compiler_ir()) == str(wanted.compiler_ir())
    compiled, reference = lowered.compile(compiler_options={}), wanted.compile()
    assert compiled.input_shardings[0][0].is_equivalent_to(reference.input_shardings[0][0], 1)
    assert compiled.output_shardings.is_equivalent_to(reference.output_shardings, 1)
    assert compiled.cost_analysis()["flops"] == reference.cost_analysis()["flops"]
    assert compiled.memory_analysis().argument_size_in_bytes == reference.memory_analysis().argument_size_in_bytes
    assert compiled.runtime_executable() is not None
    assert compiled.out_tree == reference.out_tree


# Other modes and values


def test_settings_for_debugging(mesh_2x4: Mesh) -> None:
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="log"):
        hs.jit(jnp.log, mesh=mesh_2x4)(-X - 1)
    seen: list[Any] = []
    with jax.disable_jit():
        hs.jit(seen.append, mesh=mesh_2x4)(X)
    assert isinstance(seen[0], np.ndarray)


def test_mutable_arrays_are_jaxs_to_run(mesh_2x4: Mesh) -> None:
    kept = jax.new_ref(jax.device_put(jnp.zeros((8, 8)), NamedSharding(mesh_2x4, P("data"))))

    def add(x: jax.Array) -> jax.Array:
        kept[...] = kept[...] + x
        return x.sum()

    def add_to(given: Any, x: jax.Array) -> None:
        given[...] = given[...] + x

    hs.jit(add, mesh=mesh_2x4)(X)
    np.testing.assert_array_equal(kept[...], X)
    hs.jit(add_to, mesh=mesh_2x4)(kept, X)
    np.testing.assert_array_equal(kept[...], 2 * X)


def test_tokens_and_values_without_bits(mesh_2x4: Mesh) -> None:
    token, _ = hs.jit(lambda t, x: (t, x), mesh=mesh_2x4)(jax.lax.create_token(), X)
    assert type(token).__name__ == "Token"
    made, _ = hs.jit(lambda x: (jax.lax.create_token(), x), mesh=mesh_2x4)(X)
    assert type(made) is type(token)
    gradient = jax.grad(lambda x, n: (x * n).sum(), argnums=(0, 1), allow_int=True)
    found = hs.jit(gradient, mesh=mesh_2x4)(jnp.ones(8), jnp.arange(8))[1]
    assert found.dtype == jax.dtypes.float0
    nothing = np.zeros(8, jax.dtypes.float0)
    np.testing.assert_array_equal(hs.jit(lambda x, t: x + 1, mesh=mesh_2x4)(X, nothing), X + 1)


def test_a_leaked_tracer_is_named(mesh_2x4: Mesh) -> None:
    kept: list[Any] = []
    hs.jit(lambda x: (kept.append(x), x)[1], mesh=mesh_2x4)(X)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        hs.jit(lambda y: kept[0] + y, mesh=mesh_2x4)(X)

    def leaks_inside(x: jax.Array) -> jax.Array:
        jax.vmap(lambda row: (kept.append(row), row)[1])(x)
        return kept[-1] + x

    with pytest.raises(jax.errors.UnexpectedTracerError):
        hs.jit(leaks_inside, mesh=mesh_2x4)(X)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        hs.jit(jnp.add, mesh=mesh_2x4)(kept[0], X)


def test_what_a_function_closes_over_goes_with_it(mesh_2x4: Mesh) -> None:
    def adds(array: jax.Array) -> Any:
        return hs.jit(lambda y: array + y, mesh=mesh_2x4)

    x = jnp.arange(8.0)
    add, kept = adds(x), weakref.ref(x)
    del x
    np.testing.assert_array_equal(add(add(1.0)), 2 * np.arange(8) + 1)
    assert kept() is not None
    del add
    assert kept() is None


def test_what_is_no_function_is_refused_in_jaxs_words() -> None:
    with pytest.raises(TypeError, match="Expected a callable value, got 3"):
        hs.jit(3)


def test_arrays_committed_elsewhere_are_refused_as_jax_refuses_them(mesh_2x4: Mesh) -> None:
    here, there = (jax.device_put(X, jax.devices()[n]) for n in (3, 5))
    with pytest.raises(ValueError, match="incompatible devices"):
        hs.jit(lambda x, y: x + y, mesh=mesh_2x4)(here, there)
    x = jax.device_put(X, NamedSharding(mesh_2x4, P("model")))
    with pytest.raises(TraceError, match="does not match the sharding on the respective arg"):
        hs.jit(lambda x: x, mesh=mesh_2x4, in_shardings=P("data"))(x)


# Inside other functions


@pytest.mark.parametrize("outer", ["jax.jit", "hs.jit", "eager"])
def test_inside_a_shard_map(mesh_2x4: Mesh, outer: str) -> None:
    around = {"jax.jit": jax.jit, "hs.jit": partial(hs.jit, mesh=mesh_2x4), "eager": lambda f: f}[outer]
    total, double = (hs.jit(f, mesh=mesh_2x4) for f in (lambda x: jax.lax.psum(x, "data"), lambda x: x * 2))
    summed = jax.shard_map(total, mesh=mesh_2x4, in_specs=P("data"), out_specs=P())
    mapped = jax.shard_map(lambda x: double(x) + 1, mesh=mesh_2x4, in_specs=P("data"), out_specs=P("data"))
    np.testing.assert_array_equal(around(summed)(jnp.ones(8)), 2 * np.ones(4))
    np.testing.assert_array_equal(around(mapped)(jnp.ones(8)), 3 * np.ones(8))


def test_under_another_mesh(mesh_2x4: Mesh) -> None:
    helper = hs.jit(lambda x: x * 2, mesh=Mesh(np.array(jax.devices()[:1]), ("one",)))
    with jax.set_mesh(mesh_2x4):
        np.testing.assert_array_equal(jax.jit(lambda x: helper(x) + 1)(X), 2 * X + 1)
        np.testing.assert_array_equal(jax.grad(lambda x: helper(x).sum())(X), np.full_like(X, 2))


def test_inner_result_shardings_are_kept(mesh_2x4: Mesh) -> None:
    inner = hs.jit(lambda x: x * 2, mesh=mesh_2x4, out_shardings=P(None, "model"))
    result = hs.jit(lambda x: inner(x) + 1, mesh=mesh_2x4)(X)
    assert result.sharding.is_equivalent_to(NamedSharding(mesh_2x4, P(None, "model")), 2)


def test_export(mesh_2x4: Mesh) -> None:
    exported = jax.export.export(hs.jit(lambda x: x + 1, mesh=mesh_2x4))(X)
    assert exported.out_avals[0].shape == X.shape


# Arrays that JAX has no name for


def test_a_sharded_array_is_an_array(mesh_2x4: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    y = hs.jit(lambda x: x + 1, mesh=mesh_2x4, out_shardings=P("data"))(jnp.arange(5.0))
    assert isinstance(y, hs.ShardedArray)
    assert (y.size, y.nbytes, len(y), float(y[0])) == (5, 20, 5, 1.0)
    np.testing.assert_array_equal(hs.jit(lambda a: a * 2, mesh=mesh_2x4)(y), [2, 4, 6, 8, 10])
    y.visualize()
    assert "0:3" in capsys.readouterr().out


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a + 1,
        lambda a: 2 - a,
        lambda a: a * a,
        lambda a: -a,
        lambda a: a[1:3],
        lambda a: a.sum(),
        lambda a: a.reshape(5, 1),
        lambda a: np.asarray(list(a)),
        lambda a: jnp.stack([jnp.asarray(a)] * 2),
    ],
)
def test_what_takes_an_array_takes_a_sharded_one(function: Callable[[Any], Any]) -> None:
    x = np.arange(5, dtype=np.float32)
    y = hs.device_put(x, "{devices=[2,4]<=[8] last_tile_dim_replicate}")
    assert isinstance(y, hs.ShardedArray)
    np.testing.assert_array_equal(function(y), function(x))


def test_partial_sums_cross_the_boundary_as_jaxs_unreduced_arrays(explicit: Mesh) -> None:
    a, b = (jax.device_put(X, NamedSharding(explicit, spec)) for spec in (P(None, "data"), P("data", None)))
    with jax.set_mesh(explicit):
        partial = P(None, None, unreduced={"data"})
        multiply = hs.jit(lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=partial))
        total = hs.jit(lambda x: jax.sharding.reshard(x, P()))
        product = multiply(a, b)
        assert product.sharding == NamedSharding(explicit, partial)
        np.testing.assert_allclose(total(product), X @ X, rtol=1e-5)
        np.testing.assert_allclose(sum_of_distinct_shards(product), X @ X, rtol=1e-5)


def sum_of_distinct_shards(array: jax.Array) -> np.ndarray:
    """Of devices that differ along the first mesh axis alone."""
    by_device = {shard.device: np.asarray(shard.data) for shard in array.addressable_shards}
    return sum(by_device[device] for device in array.sharding.mesh.devices[:, 0])


def test_gradients_of_values_that_are_the_same_everywhere_are_counted_once() -> None:
    mesh = jax.make_mesh((2,), ("x",))
    with jax.set_mesh(mesh):
        x = jax.device_put(np.arange(8, dtype=np.float32), P(reduced={"x"}))
        gradient = hs.jit(jax.grad(lambda x: jax.lax.reduce_precision(x, 8, 7).sum()))(x)
        np.testing.assert_array_equal(jax.sharding.reshard(gradient, P()), np.ones(8))
        ours, theirs = hs.jit(lambda x: x * 2)(x), jax.jit(lambda x: x * 2)(x)
        assert ours.sharding == theirs.sharding


def test_an_array_that_is_donated_is_given_once(mesh_2x4: Mesh) -> None:
    add = hs.jit(lambda x, y: x + y, mesh=mesh_2x4, donate_argnums=0)
    x = jnp.zeros(10)
    np.testing.assert_array_equal(add(jnp.ones(10), x), np.ones(10))
    with pytest.raises(RuntimeError, match="input 0 is donated, and given as another input"):
        add(x, x)


@pytest.mark.parametrize("given", [0, 0.5, np.float32(2), np.arange(8.0, dtype=np.float32)], ids=str)
def test_what_is_on_no_device_yet_may_be_donated_twice(mesh_2x4: Mesh, given: Any) -> None:
    def next_state(state: Any) -> Any:
        return jax.tree.map(lambda x: x + 1, state)

    ours, theirs = (jit(next_state, donate_argnums=0) for jit in (partial(hs.jit, mesh=mesh_2x4), jax.jit))
    state = {"epochs": given, "steps": given}
    for name, found in ours(state).items():
        np.testing.assert_array_equal(found, theirs(dict(state))[name])


def test_a_manual_region_reduces_the_partial_sums_that_enter_it(explicit: Mesh) -> None:
    partial = P(None, None, unreduced={"data"})
    a, b = (jax.device_put(X, NamedSharding(explicit, spec)) for spec in (P(None, "data"), P("data", None)))
    with jax.set_mesh(explicit):
        total = jax.shard_map(lambda x: jax.lax.psum(x, "data"), in_specs=partial, out_specs=P())

        def product(a: jax.Array, b: jax.Array) -> jax.Array:
            return total(jnp.einsum("ij,jk->ik", a, b, out_sharding=partial))

        np.testing.assert_allclose(hs.jit(product)(a, b), X @ X, rtol=1e-5)


def test_arrays_on_other_devices_are_another_program() -> None:
    double = hs.jit(lambda x: 2 * x)
    for devices in (jax.devices()[:4], jax.devices()[4:]):
        x = jax.device_put(X, NamedSharding(Mesh(np.array(devices), ("data",)), P("data")))
        result = double(x)
        assert result.devices() == set(devices)
        np.testing.assert_array_equal(result, 2 * X)
