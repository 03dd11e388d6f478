"""Calls back into Python from a partitioned program: one device makes each, and all get its result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import ExecutionError

X = np.arange(64, dtype=np.float32).reshape(8, 8)
LIKE = jax.ShapeDtypeStruct(X.shape, X.dtype)


def run(mesh: Mesh, program: Callable[[jax.Array], Any]) -> Any:
    return jax.block_until_ready(hs.jit(program, mesh=mesh, in_shardings=P("data", "model"))(X))


def test_a_pure_callback_gets_the_whole_array(mesh_2x4: Mesh) -> None:
    def program(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda a: np.sin(np.asarray(a)), LIKE, x * 2) + 1

    np.testing.assert_allclose(run(mesh_2x4, program), np.sin(X * 2) + 1, rtol=1e-6)
    stage = hs.jit(program, mesh=mesh_2x4, in_shardings=P("data")).trace(X).propagate().partition()
    np.testing.assert_allclose(stage.partitioned.run_reference(X), np.sin(X * 2) + 1, rtol=1e-6)
    [warning] = stage.partitioned.warnings
    assert "python_cpu_callback at test_callbacks.py" in warning
    assert "jax.pure_callback(CALLBACKS[0]" in stage.as_python()


def test_a_pure_callback_is_called_once_and_all_devices_see_one_answer(mesh_2x4: Mesh) -> None:
    seen: list[int] = []

    def host(a: jax.Array) -> np.ndarray:
        seen.append(1)
        return np.random.default_rng().normal(size=a.shape).astype(np.float32)

    def program(x: jax.Array) -> jax.Array:
        drawn = jax.pure_callback(host, LIKE, x)
        # A copy on each device, and the rows of another one: equal only if all drew the same.
        return lax.with_sharding_constraint(drawn, NamedSharding(mesh_2x4, P())) - lax.with_sharding_constraint(
            drawn, NamedSharding(mesh_2x4, P("data", "model"))
        )

    np.testing.assert_array_equal(run(mesh_2x4, program), np.zeros_like(X))
    assert len(seen) == 1


def test_a_callback_that_is_the_result_is_on_every_device(mesh_2x4: Mesh) -> None:
    """Nobody in the program reads it: all but one device had zeros, and called them whole."""

    def host(a: jax.Array) -> np.ndarray:
        return np.asarray(a) + 1

    whole = run(mesh_2x4, lambda x: jax.pure_callback(host, LIKE, x))
    for shard in whole.addressable_shards:
        np.testing.assert_array_equal(shard.data, X + 1)


def test_what_one_callback_hands_the_next_stays_on_their_device(mesh_2x4: Mesh) -> None:
    """Equinox checks by two of them.  Summed for all between the two, twice the bytes of XLA's program moved."""

    def program(x: jax.Array) -> jax.Array:
        first, second = jax.pure_callback(lambda a: (np.sin(a), np.cos(a)), (LIKE, LIKE), x)
        return jax.pure_callback(lambda a, b: np.asarray(a) + b, LIKE, first, second)

    np.testing.assert_allclose(run(mesh_2x4, program), np.sin(X) + np.cos(X), rtol=1e-5)
    stage = hs.jit(program, mesh=mesh_2x4, in_shardings=P("data")).trace(X).propagate().partition()
    assert [c.kind for c in stage.partitioned.collectives] == ["all-gather", "all-reduce"]


def test_a_callback_in_every_trip_of_a_loop(mesh_2x4: Mesh) -> None:
    seen: list[int] = []

    def host(a: jax.Array) -> np.ndarray:
        seen.append(1)
        return np.asarray(a) / 2

    def program(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, lambda _, y: jax.pure_callback(host, LIKE, y) + 1, x)

    np.testing.assert_allclose(run(mesh_2x4, program), X / 8 + 1.75)
    assert len(seen) == 3


def test_two_results_of_two_types(mesh_2x4: Mesh) -> None:
    shapes = (jax.ShapeDtypeStruct((8,), np.float32), jax.ShapeDtypeStruct((), np.int32))

    def program(x: jax.Array) -> Any:
        return jax.pure_callback(lambda a, b: (np.asarray(a).sum(0), np.int32(len(a))), shapes, x, x + 1)

    sums, count = run(mesh_2x4, program)
    np.testing.assert_allclose(sums, X.sum(0))
    assert count == 8


def test_a_callback_that_acts_is_called_once_and_all_get_its_result(mesh_2x4: Mesh) -> None:
    seen: list[np.ndarray] = []

    def host(a: jax.Array) -> np.ndarray:
        seen.append(np.asarray(a))
        return np.asarray(a) * 3

    np.testing.assert_allclose(run(mesh_2x4, lambda x: io_callback(host, LIKE, x + 1) - x), (X + 1) * 3 - X)
    assert len(seen) == 1
    np.testing.assert_allclose(seen[0], X + 1)


def test_prints_come_once_a_trip(mesh_2x4: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: jax.Array) -> jax.Array:
        def step(n: int, y: jax.Array) -> jax.Array:
            jax.debug.print("trip {n}: {s}", n=n, s=y.sum())
            return y + 1

        return lax.fori_loop(0, 3, step, x)

    np.testing.assert_allclose(run(mesh_2x4, program), X + 3)
    jax.effects_barrier()
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [f"trip {n}: {X.sum() + 64 * n}" for n in range(3)]


def test_a_callback_in_a_program_that_splits_an_axis_of_the_mesh(mesh_2x4: Mesh) -> None:
    """JAX refuses two meshes in a program with callbacks: the boundary then speaks of the program's own axes."""
    halves = hs.HloSharding.parse("{devices=[4,2]<=[8]}")

    def program(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda a: np.asarray(a) * 2, LIKE, hs.with_sharding(x + 1, halves))

    np.testing.assert_array_equal(run(mesh_2x4, program), (X + 1) * 2)


def test_ordered_effects_are_jaxs_to_run(mesh_2x4: Mesh) -> None:
    seen: list[int] = []

    def program(x: jax.Array) -> jax.Array:
        for number in range(3):
            x = io_callback(lambda a, n=number: (seen.append(n), np.asarray(a))[1], LIKE, x, ordered=True)
        return x + 1

    function = hs.jit(program, mesh=mesh_2x4)
    np.testing.assert_array_equal(function(X), X + 1)
    assert seen == [0, 1, 2]
    with pytest.raises(ExecutionError, match=r"ordered effects are not run.*io_callback.*ordered=False"):
        function.trace(X).propagate().partition().as_python()


def test_a_token_that_is_given_back_is_refused_as_one_that_is_taken() -> None:
    module = hs.load("""HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  t = token[] after-all()
  ROOT r = (f32[4], token[]) tuple(x, t)
}""")
    with pytest.raises(ExecutionError, match=r"ordered effects are not run.* at %r"):
        hs.partition(module).run_reference(np.ones(4, np.float32))


def test_inside_a_manual_region_each_device_calls_with_its_tile(mesh_2x4: Mesh) -> None:
    shapes: list[tuple[int, ...]] = []

    def host(a: jax.Array) -> np.ndarray:
        shapes.append(np.shape(a))
        return np.cos(np.asarray(a))

    def region(x: jax.Array) -> jax.Array:
        return jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    spec = P("data", "model")
    program = jax.shard_map(region, mesh=mesh_2x4, in_specs=spec, out_specs=spec)
    np.testing.assert_allclose(run(mesh_2x4, program), np.cos(X), rtol=1e-6)
    assert shapes == [(4, 2)] * 8


def test_a_module_from_a_file_lacks_the_function() -> None:
    module = hs.trace(lambda x: jax.pure_callback(lambda a: a, LIKE, x) + jnp.float32(1))(X)
    module.num_partitions = 2
    local = hs.partition(hs.load(module.to_hlo_text(), format="hlo"), num_partitions=2)
    with pytest.raises(ExecutionError, match=r"the module lacks the function.*trace the function in this process"):
        local.run(X)


@pytest.mark.parametrize("in_loop", [False, True])
def test_prints_in_a_region_that_is_manual_over_some_axes(
    mesh_2x4: Mesh, capsys: pytest.CaptureFixture[str], in_loop: bool
) -> None:
    """As `jax.jit`: of the devices that share the other axes one prints."""

    @partial(jax.shard_map, mesh=mesh_2x4, in_specs=P("data"), out_specs=P("data"), axis_names={"data"})
    def region(x: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: Any) -> tuple[jax.Array, None]:
            jax.debug.print("i={i} sum={s}", i=lax.axis_index("data"), s=x.sum())
            return x * 2, None

        return lax.scan(step, x, length=2)[0] if in_loop else step(x, None)[0]

    for jit in (jax.jit, partial(hs.jit, mesh=mesh_2x4)):
        result = jit(region)(jax.device_put(X, NamedSharding(mesh_2x4, P("data", "model"))))
        np.testing.assert_array_equal(result, X * (4 if in_loop else 2))
        jax.effects_barrier()
        rows = [(i, step) for step in range(1 + in_loop) for i in (0, 1)]
        wanted = [f"i={i} sum={X[4 * i : 4 * i + 4].sum() * 2**step}" for i, step in rows]
        assert sorted(capsys.readouterr().out.splitlines()) == sorted(wanted)
