"""Elementwise ops on slices are done where their result will be, where that moves less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from tests.support.program_check import check
from tests.support.random_programs.programs import RandomProgram

X = np.random.default_rng(0).normal(size=(32, 24)).astype(np.float32)
Function = Callable[[Any], Any]


def run(function: Function, spec: P, x: np.ndarray = X) -> hs.Partitioned:
    """The partitioned program, held against one device's run."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    module = hs.trace(function, mesh=mesh, in_shardings=(spec,), out_shardings=spec)(x)
    return check(RandomProgram(module, (x,))).partitioned


def second(u: Any) -> Any:
    return u[2:] - 2 * u[1:-1] + u[:-2]


def edges(u: Any) -> Any:
    return jnp.concatenate([u[1:2] - u[:1], (u[2:] - u[:-2]) / 2, u[-1:] - u[-2:-1]])


ONE_ROW_EACH_WAY: dict[str, Function] = {
    "pad": lambda u: jnp.pad(second(u), ((1, 1), (0, 0))),
    "pad with a number": lambda u: jnp.pad(second(u), ((1, 1), (0, 0)), constant_values=7.0),
    "update": lambda u: jnp.ones_like(u).at[1:-1].set(second(u)),
    "concatenate": lambda u: jnp.concatenate([u[:1], second(u), u[-1:]]),
    "one-sided differences at the edges": edges,
    "a predicate": lambda u: jnp.pad(jnp.where(u[2:] > u[:-2], u[1:-1], 0.5), ((1, 1), (0, 0))),
    "a splat constant": lambda u: jnp.pad(u[2:] * np.full((30, 24), 3.0, np.float32) - u[:-2], ((1, 1), (0, 0))),
}


@pytest.mark.parametrize("rows", [32, 37])
@pytest.mark.parametrize("name", ONE_ROW_EACH_WAY)
def test_a_strip_moves_in_each_direction(name: str, rows: int) -> None:
    x = np.random.default_rng(1).normal(size=(rows, 24)).astype(np.float32)
    function = ONE_ROW_EACH_WAY[name]
    if rows != 32 and "constant" in name:
        return
    local = run(function, P(("x", "y")), x)
    assert local.comm_bytes_per_device <= 2 * 24 * 4 * 7 / 8


@pytest.mark.parametrize("spec", [P("x", "y"), P("x"), P(None, ("x", "y"))])
@pytest.mark.parametrize(
    "function",
    [
        lambda u: jnp.pad(u[2:, 2:] * u[:-2, :-2], 1),
        lambda u: jnp.pad(u[1:] + u[:-1], ((1, 0), (0, 0))) + u,
        lambda u: u.at[2:-2, 1:-1].add(u[4:, 2:] - u[:-4, :-2]),
        lambda u: jnp.concatenate([second(u), second(u)[:2]]),
        lambda u: jnp.gradient(u)[0] + jnp.gradient(u)[1],
        lambda u: jnp.pad(second(u), ((1, 1), (0, 0))) + jnp.pad(second(u) * 2, ((2, 0), (0, 0))),
    ],
)
def test_it_is_what_one_device_makes(function: Function, spec: P) -> None:
    run(function, spec)


def test_what_others_read_is_computed_once() -> None:
    """The second difference is a result, too: it stays where it is."""
    mesh = Mesh(np.array(jax.devices()[:8]), ("x",))

    def both(u: Any) -> Any:
        found = second(u)
        return found, jnp.pad(found, ((1, 1), (0, 0)))

    module = hs.trace(both, mesh=mesh, in_shardings=(P("x"),), out_shardings=(P("x"), P("x")))(X)
    local = check(RandomProgram(module, (X,))).partitioned
    assert sum(i.opcode == "subtract" for i in local.module.instructions) == 1


def test_edges_are_put_where_the_middle_ends() -> None:
    """The one of the cases above that is quick: numbers alone, by the reference executor."""
    mesh, x = Mesh(np.array(jax.devices()[:2]), ("x",)), np.arange(16, dtype=np.float32).reshape(8, 2) ** 2
    local = hs.partition(hs.propagate(hs.trace(edges, mesh=mesh, in_shardings=(P("x"),), out_shardings=P("x"))(x)))
    np.testing.assert_array_equal(local.run_reference(x), edges(x))


def test_of_no_elements_no_strip_moves() -> None:
    text = """HloModule m
    ENTRY e {
      u = f32[32,0] parameter(0), sharding={devices=[2,2]<=[4]}
      a = f32[30,0] slice(u), slice={[2:32],[0:0]}
      b = f32[30,0] slice(u), slice={[0:30],[0:0]}
      c = f32[30,0] subtract(a, b), sharding={devices=[2,2]<=[4]}
      z = f32[] constant(0)
      ROOT y = f32[32,0] pad(c, z), padding=1_1x0_0, sharding={devices=[2,2]<=[4]}
    }"""
    local = hs.partition(hs.propagate(hs.load(text)))
    assert local.run_reference(np.zeros((32, 0), np.float32)).shape == (32, 0)
    assert local.comm_bytes_per_device == 0
