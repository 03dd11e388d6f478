"""How long a case takes on a GPU that is here, and what XLA allocates for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.card.cases import Case
from hlosharding.executor import ShardMapProgram

ROUNDS, SECONDS = 5, 0.15
"""So many rounds of so long: a card that has worked for a second runs at the clock that it keeps."""
REPEATS, SHORT = 64, 2e-4
"""In one program, of what takes less than so many seconds."""


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
    compiled, given = _compiled(case.function, case.shapes), jax.tree.unflatten(tree, arrays)
    seconds, spread = _seconds(compiled, given)
    if seconds < SHORT and case.family != "stream":  # of an elementwise op XLA would compute that one element
        seconds, spread = _seconds(_compiled(partial(_repeated, case.function), case.shapes), given)
        seconds /= REPEATS
    found = compiled.memory_analysis()
    used = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return Measured(seconds, spread, used / 2**30)


def _compiled(function: Callable[..., Any], shapes: Any) -> Any:
    return jax.jit(function).lower(*shapes).compile()


def _repeated(function: Callable[..., Any], *arguments: Any) -> Any:
    """One after the other in one program, where a call takes longer than what it calls: an element of each result goes
    into the next one's arguments, so that none is left out."""
    (first, *others), tree = jax.tree.flatten(arguments)
    result = None
    for _ in range(REPEATS):
        result = function(*jax.tree.unflatten(tree, (first, *others)))
        corner = jnp.ravel(jax.tree.leaves(result)[0])[:1].reshape((1,) * first.ndim)
        first = jax.lax.dynamic_update_slice(first, corner.astype(first.dtype), (0,) * first.ndim)
    return result


def _random(seed: int, dims: Sequence[int], dtype: Any) -> jax.Array:
    """Numbers with all their bits: products of constants draw less power, and run faster."""
    key = jax.random.key(seed)
    if jnp.issubdtype(dtype, jnp.floating):
        return (0.02 * jax.random.normal(key, tuple(dims), jnp.float32)).astype(dtype)
    return jax.random.randint(key, tuple(dims), 0, 30_000).astype(dtype)


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
