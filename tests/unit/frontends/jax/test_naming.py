"""Where outputs lie, in JAX's words: `jax.jit` of the same function says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def mesh_of(*kinds: AxisType, sizes: tuple[int, ...] = (2, 2)) -> Mesh:
    devices = np.array(jax.devices()[: int(np.prod(sizes))]).reshape(sizes)
    return Mesh(devices, ("a", "b"), axis_types=kinds)


def under(mesh: Any, spec: P) -> Callable[[Any], Any]:
    """The value constrained over another mesh, of the same devices."""

    def function(x: Any) -> Any:
        with jax.sharding.use_abstract_mesh(mesh):
            return jax.lax.with_sharding_constraint(jnp.sin(x), spec)

    return function


RENAMED = mesh_of(AUTO, AUTO).abstract_mesh.update(axis_sizes=(4, 1), axis_names=("c", "d"))

CASES: dict[str, tuple[Mesh, list[P], Callable[..., Any]]] = {
    "the first argument's own words": (mesh_of(AUTO, AUTO), [P("a", None)], lambda x: x * 2),
    "another lies so": (mesh_of(AUTO, AUTO), [P("a", "b"), P("b", None)], lambda x, y: (x, y + 1, x + y.sum())),
    "another rank": (mesh_of(AUTO, AUTO), [P("a", None)], lambda x: x.reshape(2, 4, 4)),
    "a product over Explicit rows": (mesh_of(EXPLICIT, AUTO), [P("a", "b"), P(None, None)], lambda x, y: x @ y.T),
    "a product over Auto rows": (mesh_of(AUTO, EXPLICIT), [P("a", "b"), P(None, "b")], lambda x, y: x * y),
    "a constraint on Auto axes": (
        mesh_of(EXPLICIT, AUTO),
        [P("a")],
        lambda x: jax.lax.with_sharding_constraint(x, P("b")),
    ),
    "an Explicit axis of one": (
        mesh_of(EXPLICIT, AUTO, sizes=(1, 2)),
        [P(None, "b")],
        lambda x: (x, jnp.ones((2, 2), out_sharding=P("a", None))),
    ),
    "a mesh of other names": (mesh_of(AUTO, AUTO), [P("a", "b")], under(RENAMED, P(("c", "d"), None))),
    "keys": (mesh_of(AUTO, AUTO), [P("a")], lambda x: jax.random.split(jax.random.key(0), x.shape[0]).reshape(2, 4).T),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_named_as_jax_names_them(case: str) -> None:
    mesh, specs, function = CASES[case]
    with jax.set_mesh(mesh):
        arguments = [jax.device_put(X, NamedSharding(mesh, spec)) for spec in specs]
        got, want = hs.jit(function)(*arguments), jax.jit(function)(*arguments)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert ours.sharding == theirs.sharding
        assert ours.sharding.mesh.axis_types == theirs.sharding.mesh.axis_types


def test_keys_are_numbers_with_all_their_dims() -> None:
    mesh = mesh_of(AUTO, AUTO)
    seeds = jax.device_put(np.arange(8, dtype=np.uint32), NamedSharding(mesh, P("a")))
    got, want = (jit(jax.vmap(jax.random.key))(seeds) for jit in (hs.jit, jax.jit))
    assert jax.random.key_data(got).sharding == jax.random.key_data(want).sharding


def test_shardings_that_have_no_mesh_keep_their_devices() -> None:
    mesh = Mesh(np.array(jax.devices()[2:4]), ("a",))
    named = NamedSharding(mesh, P("a"))
    # What has axis names for nobody, as XLA's outputs have it.
    nameless = jax.jit(lambda x: x, out_shardings=named)(X).sharding._to_xla_hlo_sharding(2)
    sharding = type_of_nameless()(tuple(mesh.devices.flat), nameless)
    array = jax.device_put(X, sharding)
    got = hs.jit(lambda x: x * 2)(array)
    np.testing.assert_array_equal(got, 2 * X)
    assert got.sharding == jax.jit(lambda x: x * 2)(array).sharding
    assert got.devices() == set(jax.devices()[2:4])


def type_of_nameless() -> Any:
    from jax._src.sharding_impls import GSPMDSharding

    return GSPMDSharding


@pytest.mark.parametrize("device", [0, 3])
def test_what_names_no_mesh_is_for_the_device_of_its_arguments(device: int) -> None:
    here = jax.devices()[device]
    compiled = hs.jit(lambda x: x * 2).lower(jax.device_put(X, here)).compile()
    assert compiled.input_shardings[0][0] == compiled.output_shardings == SingleDeviceSharding(here)
    got = compiled(jax.device_put(X, here))
    assert got.sharding == SingleDeviceSharding(here)
    np.testing.assert_array_equal(got, 2 * X)
