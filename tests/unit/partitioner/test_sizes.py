"""A smaller array takes no more time than a larger one of the same kind, whatever steps it takes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import hlosharding as hs

P = PartitionSpec
MACHINE = hs.machines.h100(8)
SIZES = (16, 32, 64, 128, 256, 512, 1024)
TWO, THREE = (2, 4), (2, 2, 2)
SQUARE, TALL = ("n", "n"), ("n", 64)


# mesh, dims and shardings of the operands, sharding of the result, op
CASES: dict[str, tuple[tuple[int, ...], list[tuple[tuple[Any, ...], Any]], Any, Callable[..., Any]]] = {
    "sum of columns": (THREE, [(SQUARE, P("a", ("b", "c")))], P(("c", "a")), lambda x: x.sum(1)),
    "sum of rows": (THREE, [(SQUARE, P("a", "c"))], P("c"), lambda x: x.sum(0)),
    "running sum": (TWO, [(SQUARE, P("b", None))], P(None, ("b", "a")), lambda x: jnp.cumsum(x, 0)),
    "slice": (THREE, [(SQUARE, P(None, ("c", "b")))], P("c", "b"), lambda x: x[: len(x) // 2]),
    "reverse": (THREE, [(SQUARE, P(("c", "a"), None))], P("a", ("c", "b")), lambda x: x[::-1]),
    "pad": (TWO, [(SQUARE, P("b", None))], P("a", "b"), lambda x: jnp.pad(x, ((len(x) // 2,) * 2, (0, 0)))),
    "concatenate": (
        TWO,
        [(SQUARE, P("a", None)), (SQUARE, P(("a", "b"), None))],
        P(None, ("a", "b")),
        lambda x, y: jnp.concatenate([x, y]),
    ),
    "reshape": (TWO, [(("n", 8, 8), P("a", "b", None))], P(None, ("b", "a")), lambda x: x.reshape(-1, 8)),
    "reshape to three dims": (
        THREE,
        [(SQUARE, P(None, "c"))],
        P(("c", "b"), None, "a"),
        lambda x: x.reshape(len(x), 4, -1),
    ),
    "product": (TWO, [(TALL, P("a", "b")), (TALL, P("a", "b"))], P("b", "a"), lambda x, y: x @ y.T),
    "rows looked up": (
        TWO,
        [(TALL, P(("a", "b"), None)), (("n",), P(("b", "a")))],
        P(("a", "b"), None),
        lambda table, rows: table[rows],
    ),
    "rows added": (
        TWO,
        [(TALL, P("a", "b")), (("n",), P("b")), (TALL, P("a", None))],
        P(("a", "b"), None),
        lambda table, rows, more: table.at[rows].add(more),
    ),
}


def _seconds(name: str, size: int) -> float:
    """Of operands of one dim, numbers of rows."""
    counts, operands, result, function = CASES[name]
    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape(counts), tuple("abc"[: len(counts)]))
    arguments = [
        jax.ShapeDtypeStruct([size if d == "n" else d for d in dims], np.int32 if len(dims) == 1 else np.float32)
        for dims, _ in operands
    ]
    specs = tuple(spec for _, spec in operands)
    module = hs.trace(function, mesh=mesh, in_shardings=specs, out_shardings=result)(*arguments)
    return hs.simulate(hs.partition(module, machine=MACHINE), MACHINE).time_s


@pytest.mark.parametrize("name", CASES)
def test_a_smaller_array_takes_no_longer(name: str) -> None:
    seconds = [_seconds(name, size) for size in SIZES]
    # Plans within one per cent are equal.
    assert all(small <= 1.01 * large for small, large in pairwise(seconds)), dict(zip(SIZES, seconds, strict=True))
