"""What the kernels of an accelerator move: what XLA's move on an H100, where each of these programs is one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.cost.kernels import Kernels
from hlosharding.ir import Module

ROWS, COLUMNS = 1024, 512
X = jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32)
ARRAY, ROW = ROWS * COLUMNS * 4, ROWS * 4


def module_of(function: Callable[..., Any], *shapes: Any) -> Module:
    return hs.partition(hs.trace(function)(*shapes), num_partitions=1).module


def moved(function: Callable[..., Any], *shapes: Any, machine: str = "h100") -> float:
    return hs.cost(module_of(function, *shapes), getattr(machines, machine)(1)).memory_traffic_bytes


def adam(w: Any, m: Any, v: Any, g: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
    return w - 3e-4 * m / (jnp.sqrt(v) + 1e-8), m, v


def norm(x: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def gelu_and_back(x: Any, g: Any) -> Any:
    y, back = jax.vjp(jax.nn.gelu, x)
    return y, back(g)[0]


@pytest.mark.parametrize(
    ("function", "inputs", "arrays"),
    [(jax.nn.softmax, 1, 2), (norm, 1, 2), (adam, 4, 7), (gelu_and_back, 2, 4)],
    ids=["softmax", "norm", "adam", "gelu"],
)
def test_one_kernel_reads_and_writes_each_array_once(function: Callable[..., Any], inputs: int, arrays: int) -> None:
    assert moved(function, *[X] * inputs) == pytest.approx(arrays * ARRAY, rel=0.01)
    assert moved(function, *[X] * inputs, machine="cpu") > 1.2 * arrays * ARRAY


def test_kernels_that_are_one_start_once() -> None:
    """Of three results of one input two more would take two more starts."""
    machine = machines.h100(1)
    three = hs.cost(module_of(lambda x: (x + 1, x * 2, jnp.tanh(x)), X), machine)
    assert three.time_s == pytest.approx(machine.launch + machine.traffic_seconds(4 * ARRAY))


def test_rows_too_long_to_keep_are_read_again() -> None:
    """A kernel of a sum, and one that divides by it."""
    wide = jax.ShapeDtypeStruct((4, 2**20), jnp.float32)
    assert moved(lambda x: x / jnp.sum(x, -1, keepdims=True), wide) == pytest.approx(3 * 4 * 2**22, rel=0.01)


def test_a_sum_over_rows_is_a_kernel_of_its_own() -> None:
    """Each of its results needs all rows: who reads it waits for all of them."""
    assert moved(lambda x: x / jnp.sum(x, 0, keepdims=True), X) == pytest.approx(3 * ARRAY, rel=0.02)


def test_no_kernel_waits_for_itself() -> None:
    """x is read by the first and by the last, which another kernel stands between: they stay two."""

    def between(x: Any) -> Any:
        first = jnp.tanh(x)
        return first, x * jnp.sum(first @ first.T)

    module = module_of(between, X)
    kernels = Kernels(module, joins=True)
    found = (kernels.kernel_ending_in(op, 0.0) for op in module.entry.instructions)
    assert all(kernel is None or kernel.starts for kernel in found)


def test_what_only_kernels_that_are_one_read_is_not_written() -> None:
    module = module_of(gelu_and_back, X, X)
    written = [op for op in module.entry.instructions if op.opcode == "tanh"]
    assert written
    assert all(op in Kernels(module, joins=True)[module.entry] for op in written)
