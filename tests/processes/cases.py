"""What each of several processes runs, and what every one of them must get: eight devices, 2 x 4, shared among them.

Some cases must fail, alike in every process: of those the error's text is known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import hlosharding as hs

P = PartitionSpec
FIVE, SIX = np.arange(5, dtype=np.float32), np.arange(6, dtype=np.float32)
WIDE = np.arange(24, dtype=np.float32).reshape(6, 4)
OVER_ALL = "{devices=[8]<=[8]}"
IN_PAIRS = "{devices=[4,2]<=[8] last_tile_dim_replicate}"


@dataclass(frozen=True)
class Case:
    """A program that all processes call, and its outcome."""

    run: Callable[[Mesh], Any]
    result: Any = None
    error: str | None = None


CASES: dict[str, Case] = {}


def gives(result: Any) -> Callable[[Callable[[Mesh], Any]], Callable[[Mesh], Any]]:
    """The function returns this in every process."""

    def enter(run: Callable[[Mesh], Any]) -> Callable[[Mesh], Any]:
        CASES[run.__name__] = Case(run, np.asarray(result).tolist())
        return run

    return enter


def fails(error: str) -> Callable[[Callable[[Mesh], Any]], Callable[[Mesh], Any]]:
    """The function fails in every process, with these words."""

    def enter(run: Callable[[Mesh], Any]) -> Callable[[Mesh], Any]:
        CASES[run.__name__] = Case(run, error=error)
        return run

    return enter


def over(mesh: Mesh, array: np.ndarray, *spec: Any) -> Any:
    """A jax array of all processes."""
    sharding = NamedSharding(mesh, P(*spec))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def whole(array: Any) -> np.ndarray:
    """All of it, in every process."""
    if isinstance(array, hs.ShardedArray):
        array = array.as_jax()
    return np.asarray(jax.jit(lambda x: x, out_shardings=NamedSharding(array.sharding.mesh, P()))(array))


def reversed_mesh(mesh: Mesh) -> Mesh:
    return Mesh(mesh.devices[::-1, ::-1], mesh.axis_names)


# ---- arrays of all processes into layouts that JAX has no name for, and back


@gives(SIX + 1)
def array_of_all_processes_into_uneven_tiles(mesh: Mesh) -> Any:
    f = hs.jit(lambda x: x + 1, mesh=mesh, in_shardings=P("model"), out_shardings=P())
    return f(over(mesh, SIX, "data"))


@gives(WIDE * 2)
def uneven_tiles_from_a_mesh_in_another_order(mesh: Mesh) -> Any:
    f = hs.jit(lambda x: x * 2, mesh=mesh, in_shardings=P("model", "data"), out_shardings=P())
    return f(over(reversed_mesh(mesh), WIDE, "data", "model"))


@gives(FIVE + 1)
def uneven_tiles_into_others(mesh: Mesh) -> Any:
    f = hs.jit(lambda x: x + 1, mesh=mesh, in_shardings=P("data"), out_shardings=P())
    return f(hs.device_put(FIVE, OVER_ALL))


@gives(SIX * 2)
def uneven_tiles_into_even_ones(mesh: Mesh) -> Any:
    f = hs.jit(lambda x: x * 2, mesh=mesh, in_shardings=P("data"), out_shardings=P())
    return f(hs.device_put(SIX, IN_PAIRS))


@gives(FIVE + 2)
def uneven_result_of_one_program_in_another(mesh: Mesh) -> Any:
    first = hs.jit(lambda x: x + 1, mesh=mesh, in_shardings=P("data"), out_shardings=P("model"))
    second = hs.jit(lambda x: x + 1, mesh=mesh, out_shardings=P())
    return second(first(FIVE))


@gives(SIX)
def device_put_of_an_array_of_all_processes(mesh: Mesh) -> Any:
    return whole(hs.device_put(over(mesh, SIX, "data"), IN_PAIRS))


@gives(SIX)
def device_put_of_uneven_tiles_under_a_jax_sharding(mesh: Mesh) -> Any:
    put = hs.device_put(hs.device_put(SIX, IN_PAIRS), NamedSharding(reversed_mesh(mesh), P("data")))
    assert put.sharding.spec == P("data")
    return whole(put)


def _uneven_tiles(mesh: Mesh) -> Any:
    return hs.jit(lambda x: x + 2, mesh=mesh, in_shardings=P("data"), out_shardings=P("data"))(FIVE)


@gives(FIVE + 2)
def uneven_tiles_as_an_array_of_jax_gathered_by_jax(mesh: Mesh) -> Any:
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(_uneven_tiles(mesh).as_jax(), tiled=True)


@fails("call `np.asarray(x.as_jax())` in every process")
def uneven_tiles_gathered_by_jax(mesh: Mesh) -> Any:
    """They are one leaf, which JAX would have to make a numpy array of in each process."""
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(_uneven_tiles(mesh), tiled=True)


@gives(np.float64(2) ** 40 + np.arange(6))
def moves_keep_64_bits(mesh: Mesh) -> Any:
    with jax.enable_x64(True):
        x = over(mesh, np.float64(2) ** 40 + np.arange(6), "data")
        return hs.jit(lambda x: x, mesh=mesh, in_shardings=P("model"), out_shardings=P())(x)


@fails("some tiles of ShardedArray(shape=(5,)")
def uneven_tiles_are_not_gathered_unasked(mesh: Mesh) -> Any:
    return np.asarray(hs.device_put(FIVE, OVER_ALL))


# ---- what each process brings of its own


@gives(15.0)
def equal_arrays_of_the_host(mesh: Mesh) -> Any:
    f = hs.jit(lambda x: x.sum(), mesh=mesh, in_shardings=P("data"))
    return [float(f(SIX)), float(f(jnp.asarray(SIX)))][1]


@fails("argument batch['x'] is not the same in all processes: process 1 gives another array than process 0")
def other_arrays_in_another_process(mesh: Mesh) -> Any:
    f = hs.jit(lambda batch: batch["x"].sum() + batch["y"].sum(), mesh=mesh, in_shardings=P("data"))
    return f({"x": SIX + jax.process_index(), "y": SIX})


@fails("argument x is not the same in all processes")
def other_arrays_at_a_later_call(mesh: Mesh) -> Any:
    f = hs.jit(lambda x: x.sum(), mesh=mesh, in_shardings=P("data"))
    f(SIX)
    return f(SIX + jax.process_index())


@fails("argument x is not the same in all processes")
def other_arrays_in_uneven_tiles(mesh: Mesh) -> Any:
    return hs.jit(lambda x: x.sum(), mesh=mesh, in_shardings=P("data"))(FIVE + jax.process_index())


@fails("argument x is not the same in all processes")
def other_arrays_on_no_particular_device(mesh: Mesh) -> Any:
    return hs.jit(lambda x: x.sum(), mesh=mesh, in_shardings=P("data"))(jnp.asarray(SIX) + jax.process_index())


@fails("the array is not the same in all processes")
def device_put_of_other_arrays(mesh: Mesh) -> Any:
    return hs.device_put(FIVE + jax.process_index(), OVER_ALL)


@fails("argument x lies on devices of this process alone, and the program's are of several")
def an_array_that_lies_in_each_process(mesh: Mesh) -> Any:
    x = jax.device_put(FIVE, jax.local_devices()[0])
    return hs.jit(lambda x: x * 2, mesh=mesh, in_shardings=P("model"))(x)


# ---- a process without a device of the mesh


@gives([5, 6])
def results_on_devices_of_one_process(mesh: Mesh) -> Any:
    part = Mesh(mesh.devices.flat[:2], ("data",))
    f = hs.jit(lambda x: x * 2, mesh=part, in_shardings=P("data"), out_shardings=P("data"))
    uneven, even = f(FIVE), f(SIX)
    mine = jax.process_index() == 0
    assert len(even.addressable_shards) == 2 * mine
    assert len(uneven.local_arrays) == 2 * mine
    if mine:
        assert np.array_equal(np.asarray(uneven), FIVE * 2)
        assert np.array_equal(np.asarray(even), SIX * 2)
    return [*uneven.shape, *even.shape]


# ---- the rest of what users hold


@gives(WIDE.T @ WIDE)
def a_partitioned_program_gives_all_to_each(mesh: Mesh) -> Any:
    module = hs.trace(lambda x: x.T @ x, mesh=mesh, in_shardings=P("data", "model"), out_shardings=P("model"))(WIDE)
    return hs.partition(module).run(WIDE)


@gives(True)
def processes_write_one_program(mesh: Mesh) -> Any:
    """They hash strings differently: no order may come from a set."""
    from jax.experimental import multihost_utils

    def loss(weights: dict[str, Any], x: Any) -> Any:
        return jnp.square(jnp.tanh(x @ weights["up"]) @ weights["down"]).sum()

    weights = {"up": np.ones((4, 8), np.float32), "down": np.ones((8, 4), np.float32)}
    specs = ({"up": P(None, "model"), "down": P("model", None)}, P("data"))
    stage = hs.jit(jax.value_and_grad(loss), mesh=mesh, in_shardings=specs).lower(weights, WIDE)
    text = f"{stage.as_python()}\n{stage.partitioned.to_hlo_text()}"
    digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
    gathered = multihost_utils.process_allgather(digest).reshape(-1, digest.size)
    return bool((gathered == digest).all())


@gives(SIX.sum() * 2)
def the_reference_executor(mesh: Mesh) -> Any:
    module = hs.trace(lambda x: (x * 2).sum(), mesh=mesh, in_shardings=P("data"))(SIX)
    return hs.partition(module).run_reference(SIX)


@gives(np.tile(SIX + 1, 3))
def donated_uneven_state(mesh: Mesh) -> Any:
    step = hs.jit(lambda x: x + 1, mesh=mesh, in_shardings=P("model"), out_shardings=P("model"), donate_argnums=0)
    states = [whole(step(hs.device_put(SIX, OVER_ALL))) for _ in range(3)]
    return np.concatenate(states)
