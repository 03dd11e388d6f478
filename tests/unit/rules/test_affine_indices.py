"""Indices that count in even steps: what is said of them is what XLA makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.ir import Instruction
from hlosharding.rules import Steps, addressing, affine_indices

U = jax.ShapeDtypeStruct((40, 30), np.float32)
Update = Callable[[Any], Any]


def scatter_of(function: Update, *arguments: Any) -> Instruction:
    module = hs.trace(function)(*(arguments or (U,)))
    [found] = [i for i in module.instructions if i.opcode == "scatter"]
    return found


def numbers(inst: Instruction) -> np.ndarray:
    """The index values, by numpy: every op that made them, in order."""
    meaning: dict[str, Callable[..., Any]] = {
        "iota": lambda i: np.broadcast_to(
            np.arange(i.shape.dims[i.iota_dimension]).reshape(
                [-1 if d == i.iota_dimension else 1 for d in range(i.shape.rank)]
            ),
            i.shape.dims,
        ),
        "constant": lambda i: i.literal,
        "broadcast": lambda i, x: np.broadcast_to(
            np.asarray(x).reshape(
                [i.shape.dims[d] if d in i.dimensions else 1 for d in range(i.shape.rank)]
            ),
            i.shape.dims,
        ),
        "reshape": lambda i, x: np.reshape(x, i.shape.dims),
        "convert": lambda i, x: np.asarray(x).astype(i.shape.dtype),
        "concatenate": lambda i, *xs: np.concatenate(xs, i.dimensions[0]),
        "add": lambda i, x, y: x + y,
        "subtract": lambda i, x, y: x - y,
        "multiply": lambda i, x, y: x * y,
        "negate": lambda i, x: -x,
        "reverse": lambda i, x: np.flip(x, i.dimensions),
        "compare": lambda i, x, y: {"LT": np.less, "GE": np.greater_equal}[i.comparison_direction](x, y),
        "select": lambda i, p, x, y: np.where(p, x, y),
        "clamp": lambda i, low, x, high: np.clip(x, low, high),
        "slice": lambda i, x: x[tuple(slice(d.start, d.limit, d.stride) for d in i.slice_dims)],
        "transpose": lambda i, x: np.transpose(x, i.dimensions),
    }  # fmt: skip
    return np.asarray(meaning[inst.opcode](inst, *(numbers(o) for o in inst.operands)))


def said(steps: Steps, dims: tuple[int, ...]) -> np.ndarray:
    grid = np.indices(dims)
    return sum((grid[d] * step for d, step in steps.steps.items()), np.full(dims, steps.start))


UPDATES: dict[str, Update] = {
    "window": lambda u: u.at[1:-1].add(1.0),
    "window of both dims": lambda u: u.at[2:-3, 5:].set(1.0),
    "row": lambda u: u.at[-1].set(1.0),
    "element": lambda u: u.at[7, -2].add(1.0),
    "even rows": lambda u: u.at[::2].add(1.0),
    "every third, from 4": lambda u: u.at[4:-1:3].set(1.0),
    "backwards": lambda u: u.at[::-2].add(1.0),
    "grid": lambda u: u.at[1::4, 2::3].add(1.0),
    "rows by arange": lambda u: u.at[jnp.arange(10) * 3 + 2].add(1.0),
    "rows counted from the end": lambda u: u.at[-1 - jnp.arange(5)].add(1.0),
    "rows of a constant": lambda u: u.at[np.arange(3, 30, 4)].set(1.0),
    "clipped": lambda u: u.at[50].set(1.0, mode="clip"),
    "outside": lambda u: u.at[jnp.arange(10) * 6].add(1.0, mode="drop"),
}


@pytest.mark.parametrize("name", UPDATES)
def test_every_index_is_said(name: str) -> None:
    inst = scatter_of(UPDATES[name])
    found, how = affine_indices(inst), addressing(inst)
    assert found is not None
    indices = inst.operands[how.indices]
    values = numbers(indices)
    for number, steps in enumerate(found):
        column = np.take(values, number, how.vector_dim) if how.vector_dim < values.ndim else values
        # What is said is said of the dims of the indices, the component's own left out.
        whole = said(steps, indices.shape.dims)
        taken = np.take(whole, 0, how.vector_dim) if how.vector_dim < values.ndim else whole
        np.testing.assert_array_equal(taken, column)


@pytest.mark.parametrize(
    "update",
    [
        lambda u: u.at[np.array([1, 2, 4])].add(1.0),
        lambda u: u.at[jnp.arange(6) ** 2].add(1.0),
        lambda u: u.at[jnp.arange(6) % 3].add(1.0),
        lambda u: u.at[jnp.argmax(u[0])].set(1.0),
        lambda u: u.at[jnp.where(jnp.arange(8) > 3, jnp.arange(8), 0)].add(1.0),
    ],
)
def test_what_does_not_count_evenly_is_not_said(update: Update) -> None:
    assert affine_indices(scatter_of(update)) is None


def test_a_narrow_type_starts_anew() -> None:
    """300 numbers of eight bits: the 129th is negative."""
    text = """HloModule m
    f { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
    ENTRY e {
      x = f32[400] parameter(0)
      i = s8[300,1] iota(), iota_dimension=0
      u = f32[300] parameter(1)
      ROOT s = f32[400] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
    }"""  # noqa: E501
    assert affine_indices(hs.load(text).entry.root) is None
