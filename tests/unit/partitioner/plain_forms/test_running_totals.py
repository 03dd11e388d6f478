"""Running sums, products and extrema along split dims: what one device makes, for one number of each tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.partitioner import PartitionOptions, in_plain_forms
from tests.support.program_check import check
from tests.support.random_programs.programs import RandomProgram
from tests.support.split_programs import module_of, right

RUNNING: dict[str, Callable[[Any], Any]] = {
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "cumprod": lambda x: jnp.cumprod(x, 0),
    "cummax": lambda x: lax.cummax(x, 0),
    "cummin": lambda x: lax.cummin(x, 0),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, 0),
    "cumsum, reversed": lambda x: lax.cumsum(x, 0, reverse=True),
    "cummax, reversed": lambda x: lax.cummax(x, 0, reverse=True),
    "cumlogsumexp, reversed": lambda x: lax.cumlogsumexp(x, 0, reverse=True),
    "a gradient": jax.grad(lambda y: (jnp.cumsum(y, 0) ** 2).sum()),
    "associative_scan": lambda x: lax.associative_scan(jnp.add, x, axis=0),
}
SPECS = [P("x", "y"), P("y", "x"), P(("x", "y"))]


def module(function: Callable[[Any], Any], spec: P, x: np.ndarray, out: P | None = None) -> hs.Module:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    return hs.trace(function, mesh=mesh, in_shardings=(spec,), out_shardings=spec if out is None else out)(x)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("rows", [32, 29, 11])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", RUNNING)
def test_it_is_what_one_device_makes(name: str, spec: P, rows: int) -> None:
    x = numbers(rows, 8)
    check(RandomProgram(module(RUNNING[name], spec, x), (x,)))


@pytest.mark.parametrize("out", [P(), P(None, "x")])
def test_where_the_result_is_wanted_otherwise(out: P) -> None:
    x = numbers(32, 8)
    check(RandomProgram(module(RUNNING["cumsum"], P("x", "y"), x, out), (x,)))


@pytest.mark.parametrize("name", [n for n in RUNNING if n.startswith("cum")])
def test_only_totals_move(name: str) -> None:
    """Two tiles of 2,048 rows: a row goes from one to the other, where half of the array did."""
    found = module(RUNNING[name], P("x"), numbers(4096, 64))
    for objective in ("bytes", "time"):
        local = hs.partition(found, options=PartitionOptions(objective=objective))
        assert local.comm_bytes_per_device <= 256


def test_as_integers_and_in_the_middle_dim() -> None:
    x = np.random.default_rng(0).integers(-5, 6, (4, 24, 6)).astype(np.int32)
    found = module(lambda x: jnp.cumsum(x, 1), P(None, ("x", "y")), x)
    check(RandomProgram(found, (x,)), how="run")


WINDOW = """
  x = f32[16] parameter(0), sharding={{devices=[8]<=[8]}}
  z = f32[] {init}
  ROOT r = f32[{result}] reduce-window(x, z), window={{{window}}}, to_apply={how}_f32, sharding={{devices=[8]<=[8]}}
"""


@pytest.mark.parametrize(
    ("init", "result", "window", "how"),
    [
        ("constant(1)", 16, "size=16 pad=15_0", "add"),
        ("constant(0)", 16, "size=15 pad=14_0", "add"),
        ("constant(0)", 8, "size=16 pad=15_0 stride=2", "add"),
        ("parameter(1)", 16, "size=16 pad=15_0", "max"),
    ],
)
def test_other_windows_stay(init: str, result: int, window: str, how: str) -> None:
    text = WINDOW.format(init=init, result=result, window=window, how=how)
    found = module_of(text)
    assert in_plain_forms(found) is found
    if init != "constant(1)":  # XLA takes initial values for neutral
        right(text)
