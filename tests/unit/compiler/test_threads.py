"""Several threads trace, propagate, partition, compile and call at once: each gets what one thread alone gets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from tests.support.threads import in_threads

X, W = np.ones((8, 16), np.float32), np.full((16, 16), 0.1, np.float32)
SPECS = (P("data"), P(None, "model"))


def layers(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ w), carry.sum()), x, None, length=3)


def test_lowering_one_function(mesh_2x4: Mesh) -> None:
    function = hs.jit(layers, mesh=mesh_2x4, in_shardings=SPECS)
    want = hs.jit(layers, mesh=mesh_2x4, in_shardings=SPECS).lower(X, W).as_python()
    assert in_threads(lambda _: function.lower(X, W).as_python(), count=4) == [want] * 4


def test_partitioning_one_module_and_one_propagation(mesh_2x4: Mesh) -> None:
    module = hs.trace(layers, mesh=mesh_2x4, in_shardings=SPECS)(X, W)
    found = hs.propagate(module, to_outputs=True)
    want = hs.partition(module).as_python(), hs.partition(found).as_python()
    fresh = hs.trace(layers, mesh=mesh_2x4, in_shardings=SPECS)(X, W)
    shared = hs.propagate(fresh, to_outputs=True)
    made = in_threads(lambda _: (hs.partition(fresh).as_python(), hs.partition(shared).as_python()))
    assert made == [want] * 8


def test_explaining_one_propagation(mesh_2x4: Mesh) -> None:
    def chains(traced: Any) -> list[str]:
        found = traced.propagate()
        return [str(found.explain(name)) for name in found.shardings]

    function = hs.jit(layers, mesh=mesh_2x4, in_shardings=SPECS)
    want = chains(function.trace(X, W))
    assert in_threads(lambda _: chains(function.trace(X, W)), count=4) == [want] * 4


def test_first_calls_of_one_function(mesh_2x4: Mesh) -> None:
    function = hs.jit(lambda x, w: jnp.tanh(x @ w).sum(), mesh=mesh_2x4, in_shardings=SPECS)

    def calls(number: int) -> list[float]:
        sizes = [8 * (1 + (number + step) % 2) for step in range(4)]
        return [float(function(np.ones((n, 16), np.float32), W)) / n for n in sizes]

    np.testing.assert_allclose(in_threads(calls), 16 * np.tanh(1.6), rtol=1e-5)


def test_functions_of_other_widths_and_jax_beside(mesh_2x4: Mesh) -> None:
    def call(number: int) -> str:
        double: Any = (jax.jit, hs.jit)[number // 2 % 2](lambda x: (x * 2).sum())
        with jax.enable_x64(number % 2 == 1):
            return str(double(jax.device_put(np.arange(8.0), NamedSharding(mesh_2x4, P("data")))).dtype)

    assert in_threads(call, count=4) == ["float32", "float64"] * 2


def test_custom_partitioning(mesh_2x4: Mesh) -> None:
    def per_device(mesh: Any, operands: Any, result: Any) -> Any:
        return mesh, lambda x: x + x, result.sharding, (operands[0].sharding,)

    @custom_partitioning
    def twice(x: Any) -> Any:
        return x * 2

    twice.def_partition(
        partition=per_device, infer_sharding_from_operands=lambda _, operands, __: operands[0].sharding,
        sharding_rule="i j -> i j",
    )  # fmt: skip

    def lowered(number: int) -> str:
        return hs.jit(lambda x: twice(x + number), mesh=mesh_2x4, in_shardings=P("data")).lower(X).as_python()

    want = [lowered(number) for number in range(4)]
    assert not any("* 2" in text for text in want)  # what runs is the user's sum
    assert in_threads(lowered, count=4) == want
    theirs = jax.jit(twice, in_shardings=NamedSharding(mesh_2x4, P("data"))).lower(X)  # JAX's own is as it was
    assert "custom_partitioning" in theirs.as_text().lower() or "CustomSPMDPartitioning" in theirs.as_text()
