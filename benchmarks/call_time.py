"""What does a call of a compiled function cost, `hs.jit`'s against `jax.jit`'s, with one array and with 300?

Both are called in turns, on eight CPU devices, with arrays that lie where the program wants them; the least of many
rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from rich.table import Table

import hlosharding as hs
from benchmarks.verdict import finish, judged
from examples import devices

LIMIT = 1.3
ROUNDS = 15


def seconds(function: Callable[..., Any], argument: Any, calls: int) -> float:
    """Of one call, the mean of `calls`."""
    start = time.perf_counter()
    result = None
    for _ in range(calls):
        result = function(argument)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / calls


def measured(mesh: Mesh, leaves: int, calls: int) -> tuple[float, float]:
    """(ours, jax.jit's), microseconds."""
    split = NamedSharding(mesh, P("data"))
    arrays = [jax.device_put(jnp.ones((8, 8)), split) for _ in range(leaves)]
    both = [jit(lambda xs: [x + 1 for x in xs]) for jit in (lambda f: hs.jit(f, mesh=mesh), jax.jit)]
    for function in both:
        function(arrays)
        function(arrays)
    rounds = [[seconds(function, arrays, calls) for function in both] for _ in range(ROUNDS)]
    ours, theirs = map(min, zip(*rounds, strict=True))
    return ours * 1e6, theirs * 1e6


def main() -> None:
    """Print the table; fail where a call costs more than the limit."""
    devices.choose_platform()
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    table = Table("arrays", "hs.jit, µs", "jax.jit, µs", "ratio", title="A call that was made before")
    kept: list[bool] = []
    for leaves, calls in ((1, 200), (300, 10)):
        ours, theirs = measured(mesh, leaves, calls)
        text, is_kept = judged(ours / theirs, LIMIT)
        kept.append(is_kept)
        table.add_row(str(leaves), f"{ours:,.0f}", f"{theirs:,.0f}", text)
    finish(table, kept)


if __name__ == "__main__":
    main()
