"""Floats of hardly a digit: their sums, products and extrema over split dims are what one device makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs

HALVES = (np.random.default_rng(0).integers(-1, 2, (16, 16)) * 0.5).astype(ml_dtypes.float4_e2m1fn)
POWERS = (2.0 ** np.random.default_rng(0).integers(-3, 4, (16, 16))).astype(ml_dtypes.float8_e8m0fnu)
CASES: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "f4 sum of rows": (lambda x: x.sum(1), HALVES),
    "f4 sum": (lambda x: x.sum(), HALVES),
    "f4 max": (lambda x: x.max(0), HALVES),
    "f8e8m0 max": (lambda x: x.max(0), POWERS),
    "f8e8m0 min of rows": (lambda x: x.min(1), POWERS),
    "f8e8m0 in f32": (lambda x: x.astype(jnp.float32).max(0), POWERS),
}


@pytest.mark.parametrize("spec", [P(("data", "model")), P(None, ("data", "model")), P("data", "model")])
@pytest.mark.parametrize("name", CASES)
def test_eight_devices_compute_what_one_does(mesh_2x4: Mesh, name: str, spec: P) -> None:
    function, x = CASES[name]
    local = hs.jit(function, mesh=mesh_2x4, in_shardings=(spec,)).trace(x).propagate().partition().partitioned
    want = np.asarray(jax.jit(function)(x)).astype(np.float32)
    for got in (local.run(x), local.run_reference(x)):
        np.testing.assert_array_equal(np.asarray(got).astype(np.float32), want)


@pytest.mark.parametrize("spec", [P(("data", "model")), P(None, ("data", "model"))])
def test_sums_of_columns_are_no_further_off_than_one_device(mesh_2x4: Mesh, spec: P) -> None:
    # XLA adds up a column of [16,16] in another order than one of [16,2].
    x = np.random.default_rng(0).integers(-2, 3, (16, 16)).astype(ml_dtypes.float4_e2m1fn)
    exact = np.clip(x.astype(np.float64).sum(0), -6, 6)
    local = hs.jit(lambda x: x.sum(0), mesh=mesh_2x4, in_shardings=(spec,)).trace(x).propagate().partition()
    ours = np.abs(np.asarray(local.partitioned.run(x)).astype(np.float64) - exact).max()
    one = np.abs(np.asarray(jax.jit(lambda x: x.sum(0))(x)).astype(np.float64) - exact).max()
    assert ours <= 2 * one + 2  # the last place of 4 and 6
