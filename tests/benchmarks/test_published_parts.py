"""The published decoders' own ops mean what JAX's do."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.published.float8 import SCALINGS, product8
from benchmarks.published.transformer import (
    SOFTMAXES,
    adam,
    adam_op_by_op,
    clipped,
    cross_entropy,
    eager_cross_entropy,
    parallel_cross_entropy,
    split_cross_entropy,
)


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


def by_vocabulary(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.mean(split_cross_entropy(logits, jnp.roll(tokens, -1, axis=1))[:, :-1])


@pytest.mark.parametrize("entropy", [eager_cross_entropy, with_softmax, by_vocabulary])
def test_a_loss_op_by_op_is_the_same(entropy: Callable[..., jax.Array]) -> None:
    logits, tokens = drawn(0, 2, 16, 50), jax.random.randint(jax.random.key(1), (2, 16), 0, 50)
    found, wanted = (jax.value_and_grad(each)(logits, tokens) for each in (entropy, cross_entropy))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("softmax", SOFTMAXES.values())
def test_a_masked_softmax_of_any_number_of_kernels_is_the_same(softmax: Callable[..., jax.Array]) -> None:
    def plain(scores: jax.Array) -> jax.Array:
        return jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((16, 16), bool)), scores, -jnp.inf))

    scores, given = drawn(0, 2, 4, 16, 16), drawn(1, 2, 4, 16, 16)
    for pull in (lambda each: each(scores), lambda each: jax.vjp(each, scores)[1](given)[0]):
        np.testing.assert_allclose(pull(softmax), pull(plain), rtol=1e-5, atol=1e-7)


def test_gradients_are_clipped_to_one() -> None:
    """Of a loss that was scaled by two, on two devices: a quarter of the sums."""
    (long, short) = clipped([drawn(0, 64), 4 * jnp.ones(1) / 8])
    np.testing.assert_allclose(jnp.linalg.norm(long), 1.0, rtol=1e-5)
    np.testing.assert_allclose(short, 0.125)


def test_masters_are_what_moves() -> None:
    weight, masters = jnp.ones(4, jnp.bfloat16), jnp.full(4, 1.001)
    stored, (*_, [moved]) = adam([weight], ([jnp.zeros(4)], [jnp.zeros(4)], [masters]), [jnp.full(4, 2.0)])
    np.testing.assert_allclose(moved, 1.001 - 3e-4 * 0.2 / np.sqrt(0.2), rtol=1e-6)
    assert stored[0].dtype == jnp.bfloat16


def test_an_update_op_by_op_is_adam_behind_decay() -> None:
    """Decay is no part of the gradient (Loshchilov and Hutter 2019); of a norm below one nothing is clipped."""
    weight, gradient, mean, square = (drawn(n, 8) for n in range(4))
    given = [weight], ([mean], [square**2]), [gradient / jnp.linalg.norm(gradient) / 2]
    found, wanted = adam_op_by_op(*given), adam(*given)
    np.testing.assert_allclose(found[0][0], wanted[0][0] - 3e-5 * weight, rtol=1e-5, atol=1e-7)
    for one, other in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-6)
