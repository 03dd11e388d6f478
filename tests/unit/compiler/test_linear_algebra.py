"""LAPACK calls split by batch: the layouts they were called with stay, and every device gets its own matrices right."""

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

RANDOM = np.random.default_rng(0)
ANY = RANDOM.normal(size=(8, 5, 5)).astype(np.float32)
DEFINITE = ANY @ ANY.transpose(0, 2, 1) + 5 * np.eye(5, dtype=np.float32)
RIGHT = RANDOM.normal(size=(8, 5, 3)).astype(np.float32)


def singular_values(x: jax.Array) -> Any:
    return jnp.linalg.svd(x)[1]


def eigenvalues(x: jax.Array) -> Any:
    return jnp.linalg.eigh(x)[0]


def triangular(x: jax.Array, y: jax.Array) -> Any:
    return jax.scipy.linalg.solve_triangular(x, y, lower=True)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (jnp.linalg.cholesky, (DEFINITE,)),
        (jnp.linalg.qr, (ANY,)),
        (singular_values, (ANY,)),
        (eigenvalues, (DEFINITE,)),
        (jnp.linalg.solve, (DEFINITE, RIGHT)),
        (triangular, (DEFINITE, RIGHT)),
        (jnp.linalg.inv, (ANY,)),
    ],
)
def test_a_batch_of_matrices_is_computed_where_it_lies(
    function: Callable[..., Any], arguments: tuple[np.ndarray, ...]
) -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    step = hs.jit(function, mesh=mesh, in_shardings=tuple(P("x") for _ in arguments))
    partitioned = step.trace(*arguments).propagate().partition().partitioned
    assert partitioned.warnings == ()
    found, expected = step(*arguments), jax.jit(function)(*arguments)
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)
