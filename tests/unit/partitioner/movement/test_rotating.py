"""Rotations pass strips between neighbours; what moves is what XLA's rotate moves, or less."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs

X = np.arange(8.0 * 16, dtype=np.float32).reshape(8, 16)


def partitioned(shift: int, spec: P) -> hs.Partitioned:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    return hs.partition(hs.trace(lambda a: jnp.roll(a, shift, axis=1), mesh=mesh, in_shardings=(spec,))(X))


@pytest.mark.parametrize("shift", [1, -1, 3, 4, 5, -7, 8, 15])
def test_every_distance_is_right(shift: int) -> None:
    np.testing.assert_array_equal(partitioned(shift, P("x", "y")).run(X), np.roll(X, shift, axis=1))


@pytest.mark.parametrize(("shift", "columns"), [(1, 1), (-1, 1), (3, 3), (4, 4), (8, 4)])
def test_only_what_moves_travels(shift: int, columns: int) -> None:
    assert partitioned(shift, P("x", "y")).comm_bytes_per_device == 4 * columns * 4  # rows of a tile, columns, bytes


def test_a_rotation_along_a_whole_dim_is_free() -> None:
    assert partitioned(3, P("x", None)).collectives == []
