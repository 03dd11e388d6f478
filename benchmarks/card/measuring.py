"""How long a case takes on a GPU that is here, and what XLA allocates for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.card.cases import Case
from hlosharding.executor import ShardMapProgram

ROUNDS, SECONDS = 5, 0.15
"""So many rounds of so long: a card that has worked for a second runs at the clock that it keeps."""


class Measured(NamedTuple):
    """Of one run."""

    seconds: float
    spread: float
    """The slowest round over the fastest one."""
    gibibytes: float
    """Arguments, results and all between, as XLA allocated them."""


def measure(case: Case) -> Measured:
    """Compile and run it on the first device."""
    if case.ready:
        executable = ShardMapProgram(case.ready()).compile(jax.devices()[:1])
        arrays = [
            _random(n, layout.shape.dims, layout.shape.dtype) for n, layout in enumerate(executable.boundary.inputs)
        ]
        placed = [executable.place(array, number) for number, array in enumerate(arrays)]
        return Measured(*_seconds(executable.call, placed), 0.0)
    leaves, tree = jax.tree.flatten(case.shapes)
    arrays = [_random(n, leaf.shape, leaf.dtype) for n, leaf in enumerate(leaves)]
    assert case.function is not None
    compiled = jax.jit(case.function).lower(*case.shapes).compile()
    found = compiled.memory_analysis()
    used = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return Measured(*_seconds(compiled, jax.tree.unflatten(tree, arrays)), used / 2**30)


def _random(seed: int, dims: Sequence[int], dtype: Any) -> jax.Array:
    """Numbers with all their bits: products of constants draw less power, and run faster."""
    key = jax.random.key(seed)
    if jnp.issubdtype(dtype, jnp.floating):
        return (0.02 * jax.random.normal(key, tuple(dims), jnp.float32)).astype(dtype)
    return jax.random.randint(key, tuple(dims), 0, 1000).astype(dtype)


def _seconds(run: Callable[..., Any], arrays: Sequence[Any]) -> tuple[float, float]:
    jax.block_until_ready(run(*arrays))
    count, rounds = 1, list[float]()
    while (taken := _timed(run, arrays, count)) < SECONDS / 4:
        count *= 4
    count = max(1, round(count * SECONDS / taken))
    for _ in range(ROUNDS):
        rounds.append(_timed(run, arrays, count) / count)
    return median(rounds), max(rounds) / min(rounds)


def _timed(run: Callable[..., Any], arrays: Sequence[Any], count: int) -> float:
    start, result = perf_counter(), None
    for _ in range(count):
        result = run(*arrays)
    jax.block_until_ready(result)
    return perf_counter() - start
