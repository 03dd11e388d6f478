"""Strips of one array between the same devices travel once, where the box around them is no more than they are."""

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

ROW = 8 * 4
"""Bytes of a row."""


def run(function: Callable[[Any], Any], rows: int = 64) -> hs.Partitioned:
    """The partitioned program over eight devices, held against one device's run."""
    mesh, x = (
        Mesh(np.array(jax.devices()[:8]), ("x",)),
        np.random.default_rng(0).normal(size=(rows, 8)).astype(np.float32),
    )
    module = hs.trace(function, mesh=mesh, in_shardings=(P("x"),), out_shardings=P("x"))(x)
    check(RandomProgram(module, (x,)), how="run")
    return check(RandomProgram(module, (x,))).partitioned


def permutes(local: hs.Partitioned) -> list[float]:
    return [c.bytes_per_device for c in local.collectives if c.kind == "collective-permute"]


def test_the_larger_strip_has_the_smaller_one() -> None:
    local = run(lambda u: jnp.roll(u, 1, 0) + jnp.roll(u, 3, 0) + jnp.roll(u, 2, 0))
    assert permutes(local) == [3 * ROW]


def test_in_both_directions() -> None:
    local = run(lambda u: jnp.roll(u, 1, 0) - jnp.roll(u, -1, 0) + jnp.roll(u, 2, 0) * jnp.roll(u, -2, 0))
    assert permutes(local) == [2 * ROW, 2 * ROW]


@pytest.mark.parametrize("rows", [64, 60])
def test_slices_at_several_places(rows: int) -> None:
    local = run(lambda u: u[3:] + u[2:-1] * u[1:-2] - u[:-3], rows)
    assert local.comm_bytes_per_device <= 3 * ROW


def test_what_lies_apart_travels_apart() -> None:
    """The first and the last column of a tile: a box around both would be the tile."""
    mesh, x = Mesh(np.array(jax.devices()[:8]), ("x",)), np.ones((64, 64), np.float32)

    def corners(u: Any) -> Any:
        one, other = u.at[:, 1:].set(0.0), u.at[:, :-1].set(0.0)
        return jnp.roll(one, 1, 0)[:, :1] + jnp.roll(other, 1, 0)[:, -1:]

    local = hs.partition(hs.trace(corners, mesh=mesh, in_shardings=(P("x"),), out_shardings=P("x"))(x))
    assert local.comm_bytes_per_device <= 2 * 64 * 4


def test_different_arrays_do_not_meet() -> None:
    local = run(lambda u: jnp.roll(u, 1, 0) + jnp.roll(jnp.sin(u), 2, 0))
    assert sorted(permutes(local)) == [ROW, 2 * ROW]
