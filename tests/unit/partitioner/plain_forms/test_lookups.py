"""Gathers whose places are known are slices: what one device makes, and only what is lacking moves."""

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


def run(function: Callable[[Any], Any], spec: P) -> hs.Partitioned:
    """The partitioned program, held against one device's run."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    module = hs.trace(function, mesh=mesh, in_shardings=(spec,), out_shardings=spec)(X)
    return check(RandomProgram(module, (X,))).partitioned


LOOKUPS: dict[str, Callable[[Any], Any]] = {
    "even rows": lambda u: u[np.arange(0, 32, 2)],
    "even rows, traced": lambda u: u[jnp.arange(16) * 2],
    "backwards": lambda u: u[np.arange(32)[::-1]],
    "columns": lambda u: u[:, np.arange(1, 24, 3)],
    "columns first": lambda u: u[np.arange(0, 32, 4)[:, None], np.arange(0, 24, 3)].T,
    "a grid": lambda u: u[jnp.arange(8)[:, None] * 4 + 1, 23 - jnp.arange(8) * 2],
    "clipped": lambda u: jnp.take(u, np.arange(20, 36), axis=0, mode="clip"),
    "wrapped": lambda u: jnp.take(u, np.arange(-8, 8), axis=0, mode="wrap"),
    "filled": lambda u: u.at[jnp.arange(20) * 2].get(mode="fill", fill_value=7.0),
    "a gradient": jax.grad(lambda u: (u[np.arange(0, 32, 2)] ** 2).sum()),
}


@pytest.mark.parametrize("spec", [P("x", "y"), P(("x", "y")), P("y", "x")])
@pytest.mark.parametrize("name", LOOKUPS)
def test_it_is_what_one_device_makes(name: str, spec: P) -> None:
    run(LOOKUPS[name], spec)


@pytest.mark.parametrize("name", ["even rows", "even rows, traced", "columns"])
def test_what_is_at_hand_does_not_move(name: str) -> None:
    assert run(LOOKUPS[name], P("x", "y")).comm_bytes_per_device == 0


def test_others_stay_gathers() -> None:
    local = run(lambda u: u[np.array([0, 1, 3, 7] * 8)], P(("x", "y")))
    assert "gather" in {i.opcode for i in local.module.instructions}
