"""Integers of two bits: what XLA's CPU compiler runs right is run, what would end the process is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import ExecutionError

X = np.random.default_rng(0).integers(-2, 2, (16, 16)).astype(ml_dtypes.int2)


def partitioned(function: Callable[..., Any], mesh: Mesh) -> hs.Partitioned:
    return (
        hs.jit(function, mesh=mesh, in_shardings=(P(("data", "model")),)).trace(X).propagate().partition().partitioned
    )


HARMLESS: dict[str, Callable[..., Any]] = {
    "elementwise": lambda x: x + x * x,
    "select": lambda x: jnp.where(x > 0, x, x + x),
    "convert": lambda x: x.astype(jnp.int8).sum(0).astype(jnp.int2),
    "transpose": lambda x: x.T,
    "broadcast": lambda x: jnp.broadcast_to(x[:, :, None], (16, 16, 3)),
    "reduce": lambda x: x.max(1),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_eight_devices_compute_what_one_does(mesh_2x4: Mesh, name: str) -> None:
    local = partitioned(HARMLESS[name], mesh_2x4)
    want = np.asarray(jax.jit(HARMLESS[name])(X)).astype(np.int8)
    for got in (local.run(X), local.run_reference(X)):
        np.testing.assert_array_equal(np.asarray(got).astype(np.int8), want)


@pytest.mark.parametrize("opcode", ["sort", "concatenate", "all-reduce"])
def test_what_would_end_the_process_is_refused(mesh_2x4: Mesh, opcode: str) -> None:
    made: dict[str, Callable[..., Any]] = {
        "sort": lambda x: lax.sort(x, dimension=1),
        "concatenate": lambda x: lax.concatenate([x, x], 1),
        "all-reduce": lambda x: x.max(0),
    }
    local = partitioned(made[opcode], mesh_2x4)
    for run in (local.run, local.run_reference):
        with pytest.raises(
            ExecutionError, match=rf"{opcode} of 2-bit integers.*{Path(__file__).stem}.*convert to int4"
        ):
            run(X)


@pytest.mark.parametrize("function", ["lax.sort(x, dimension=0)", "lax.concatenate([x, x], 1)"])
def test_xla_itself_ends_the_process_there(function: str) -> None:
    """If this fails, XLA was mended: allow the op."""
    text = (
        "import jax, numpy as np, ml_dtypes\nfrom jax import lax\nx = np.zeros((16, 16), ml_dtypes.int2)\n"
        f"for _ in range(60): np.asarray(jax.jit(lambda x: {function})(x))\n"
    )
    environment = {**os.environ, "XLA_FLAGS": ""}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, check=False)
    assert done.returncode < 0, done.stderr[-500:]
