"""Random chains of views and elementwise ops: what the source leaves to numpy's broadcasting is still the value."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
SIZES = (1, 2, 3, 4)


def chain(random: Random, length: int = 9) -> Any:
    """A function of one array f32[2,3,4], and of a row of it, that makes several arrays."""
    seed = random.randrange(1 << 30)

    def function(x: jax.Array, row: jax.Array) -> Any:
        draw = Random(seed)
        made = [x, row, jnp.sum(x), jnp.max(x, axis=1)]
        for _ in range(length):
            made.append(_step(draw, made))
        return made[-3:]

    return function


def _step(draw: Random, made: list[jax.Array]) -> jax.Array:
    array = draw.choice(made[-4:])
    match draw.randrange(8):
        case 0:
            return lax.reshape(array, _regrouped(draw, array.shape))
        case 1:
            shape = tuple(draw.choice(SIZES) for _ in range(draw.randrange(3)))
            return jnp.broadcast_to(array, shape + array.shape)[(0,) * max(0, len(shape) + array.ndim - 4)]
        case 2:
            return jnp.transpose(array, draw.sample(range(array.ndim), array.ndim))
        case 3:
            axes = tuple(sorted(draw.sample(range(array.ndim), draw.randint(0, array.ndim))))
            return draw.choice((jnp.sum, jnp.max))(array, axis=axes, keepdims=draw.random() < 0.5)
        case 4:
            return draw.choice((jnp.tanh, jnp.negative))(array) * draw.choice((1.0, 0.5, -2.0))
        case 5:
            return jnp.expand_dims(array, draw.randint(0, array.ndim)) if array.ndim < 4 else -array
        case _:
            return _combined(draw, array, draw.choice(made))


def _combined(draw: Random, left: jax.Array, right: jax.Array) -> jax.Array:
    try:
        shape = np.broadcast_shapes(left.shape, right.shape)
    except ValueError:
        right, shape = jnp.sum(right), left.shape
    left, right = jnp.broadcast_to(left, shape), jnp.broadcast_to(right, shape)
    if draw.random() < 0.3:
        return jnp.where(left > right, left, draw.choice((right, jnp.zeros_like(right))))
    return draw.choice((jnp.add, jnp.multiply, jnp.subtract, jnp.maximum))(left, right)


def _regrouped(draw: Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Neighbours joined, or a dim of size 1 put in or taken out."""
    dims = list(shape)
    place = draw.randrange(len(dims) + 1)
    if len(dims) > 1 and draw.random() < 0.5:
        place = min(place, len(dims) - 2)
        return (*dims[:place], math.prod(dims[place : place + 2]), *dims[place + 2 :])
    if 1 in dims and draw.random() < 0.5:
        dims.remove(1)
        return tuple(dims)
    return (*dims[:place], 1, *dims[place:])


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.sampled_from((P(), P("x"), P(None, None, "x"))))
def test_views_are_what_they_were(cpu_devices: list[Any], random: Random, given: P) -> None:
    mesh, function = Mesh(np.array(cpu_devices[:2]), ("x",)), chain(random)
    program = hs.partition(hs.trace(function, mesh=mesh, in_shardings=(given, P()))(X, X[0, 0]))
    for found, want in zip(program.run(X, X[0, 0]), jax.jit(function)(X, X[0, 0]), strict=True):
        assert found.shape == want.shape
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-5, atol=1e-5)
