"""The published decoders' own ops mean what JAX's do."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.published.float8 import SCALINGS, product8
from benchmarks.published.transformer import cross_entropy, eager_cross_entropy, parallel_cross_entropy


def drawn(number: int, *dims: int) -> jax.Array:
    return jax.random.normal(jax.random.key(number), dims)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_products_in_float8_are_einsums_but_for_rounding(scaling: str) -> None:
    """Three bits of mantissa: a sixteenth at most, less in a sum."""
    x, weight, given = drawn(0, 2, 32, 64), drawn(1, 64, 4, 8), drawn(2, 2, 32, 4, 8)
    equation = "bsw,whd->bshd"
    found, pull = jax.vjp(lambda *operands: product8(equation, scaling, *operands), x, weight)
    wanted, pull_wanted = jax.vjp(lambda *operands: jnp.einsum(equation, *operands), x, weight)
    for one, other in zip((found, *pull(given)), (wanted, *pull_wanted(given)), strict=True):
        assert jnp.linalg.norm(jnp.asarray(one) - other) < 0.06 * jnp.linalg.norm(other)


def with_softmax(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.mean(parallel_cross_entropy(logits, jnp.roll(tokens, -1, axis=1))[:, :-1])


@pytest.mark.parametrize("entropy", [eager_cross_entropy, with_softmax])
def test_a_loss_op_by_op_is_the_same(entropy: Callable[..., jax.Array]) -> None:
    logits, tokens = drawn(0, 2, 16, 50), jax.random.randint(jax.random.key(1), (2, 16), 0, 50)
    found, wanted = (jax.value_and_grad(each)(logits, tokens) for each in (entropy, cross_entropy))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
