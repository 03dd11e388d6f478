"""Random stencils: starts, steps, windows, modes and sizes that tiles do not divide, against one device's run."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.partitioner import PartitionOptions
from tests.support.program_check import is_close

SPECS = (P("x"), P("x", "y"), P("y", "x"), P(None, ("x", "y")), P(("y", "x")))
WAYS = ("add", "set", "multiply", "min", "max")
MODES = ("edge", "reflect", "wrap", "symmetric", "constant")
Function = Callable[[Any], Any]


def _window(random: Random, size: int) -> slice:
    """A part of a dim, perhaps with steps, forwards or backwards."""
    step = random.choice((1, 1, 1, 2, 3, -1, -2))
    start, stop = sorted(random.sample(range(size + 1), 2))
    return slice(start, stop, step) if step > 0 else slice(stop - 1, start - 1 if start else None, step)


def _update(random: Random, shape: tuple[int, ...]) -> Function:
    place, way = tuple(_window(random, n) for n in shape), random.choice(WAYS)
    sizes = tuple(len(range(*w.indices(n))) for w, n in zip(place, shape, strict=True))
    where = tuple(random.randint(0, n - k) for n, k in zip(shape, sizes, strict=True))
    cut = tuple(slice(at, at + k) for at, k in zip(where, sizes, strict=True))
    scale = random.choice((0.0, 1.0, 2.0))
    return lambda u: getattr(u.at[place], way)(u[cut] * scale + jnp.sin(u[cut]) if scale else 0.5)


def _clipped(random: Random, shape: tuple[int, ...]) -> Function:
    row, mode = random.randint(-3, shape[0] + 3), random.choice(("drop", "clip", "fill"))
    return lambda u: u.at[np.array([row])].add(u[:1], mode=mode)


def _by_rows(random: Random, shape: tuple[int, ...]) -> Function:
    """Rows in even steps, some of them perhaps outside, updated and looked up."""
    step, count = random.choice((1, 1, 2, -1, -3)), random.randint(1, 7)
    rows = random.randint(-4, shape[0]) + step * np.arange(count)
    mode = random.choice(("drop", "clip", "fill"))

    def function(u: Any) -> Any:
        found = u.at[jnp.asarray(rows)].get(mode=mode, fill_value=0.5)
        return u.at[jnp.arange(count) * step + int(rows[0])].add(found, mode="drop")

    return function


def _looked_up(random: Random, shape: tuple[int, ...]) -> Function:
    """All rows, or every other, in another order."""
    window = random.choice((slice(None, None, -1), slice(None, None, 2), slice(1, None), slice(-2, None, -2)))
    rows, dim = np.arange(shape[0])[window], random.randrange(2)
    back = [(0, shape[0] - len(rows)), (0, 0)]
    if dim:
        return lambda u: u + jnp.pad(u[rows][:, : shape[1]], back)
    return lambda u: u + jnp.pad(jnp.take(u, jnp.asarray(rows), axis=0), back)


def _padded(random: Random, shape: tuple[int, ...]) -> Function:
    mode, reach = random.choice(MODES), random.randint(1, 2)

    def function(u: Any) -> Any:
        p = jnp.pad(u, reach, mode=mode)
        last = p.shape[0] - 2 * reach, p.shape[1] - 2 * reach
        parts = [(a, b) for a in range(2 * reach + 1) for b in range(2 * reach + 1) if random_choice[a + b]]
        return sum((p[a : a + last[0], b : b + last[1]] * (a + 2 * b) for a, b in parts), u)

    random_choice = [random.random() < 0.6 for _ in range(9)]
    return function


def _rolled(random: Random, shape: tuple[int, ...]) -> Function:
    shifts = [(random.randint(-4, 4), random.randrange(2)) for _ in range(random.randint(1, 4))]
    return lambda u: sum((jnp.roll(u, by, dim) * (n + 1) for n, (by, dim) in enumerate(shifts)), u)


def _running(random: Random, shape: tuple[int, ...]) -> Function:
    way = random.choice((lax.cumsum, lax.cummax, lax.cummin, lax.cumlogsumexp, lax.cumprod))
    dim, reverse = random.randrange(2), random.random() < 0.5
    return lambda u: way(u, dim, reverse=reverse)


def _difference(random: Random, shape: tuple[int, ...]) -> Function:
    reach, dim = random.randint(1, 3), random.randrange(2)

    def function(u: Any) -> Any:
        v = jnp.moveaxis(u, dim, 0)
        inner = sum(v[a : v.shape[0] - 2 * reach + a] * (a + 1) for a in range(2 * reach + 1))
        made = (
            jnp.concatenate([v[:reach] * 2, inner, v[-reach:] - 1]) if reach > 1 else jnp.pad(inner, ((1, 1), (0, 0)))
        )
        return jnp.moveaxis(made, 0, dim)

    return function


KINDS = (_update, _update, _clipped, _by_rows, _looked_up, _padded, _rolled, _running, _difference)


@pytest.mark.parametrize("seed", range(60))
def test_a_random_stencil_is_right(seed: int) -> None:
    random = Random(seed)
    shape = random.choice(((16, 16), (17, 12), (23, 19), (9, 40)))
    steps = [random.choice(KINDS)(random, shape) for _ in range(random.randint(1, 3))]

    def function(u: Any) -> Any:
        for step in steps:
            u = jnp.tanh(step(u))
        return u

    mesh, spec = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y")), random.choice(SPECS)
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    module = hs.trace(function, mesh=mesh, in_shardings=(spec,), out_shardings=random.choice(SPECS))(x)
    local = hs.partition(module, options=PartitionOptions(objective=random.choice(("bytes", "time"))))
    assert is_close(np.asarray(local.run(x)), np.asarray(jax.jit(function)(x)))
