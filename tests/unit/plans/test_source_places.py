"""Which expression of the source makes a value: operators, and calls that are nothing but one op."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.plans.source_places import expression, places


def added(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sin(x + y)


def called(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sin(jnp.add(x, y))


def transposed(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sin(jnp.einsum("bij,bjk->ibk", x, y))


@pytest.mark.parametrize(
    ("function", "text", "dims"),
    [
        (added, "x + y", (3, 4, 4)),
        (called, "jnp.add(x, y)", (3, 4, 4)),
        (transposed, "jnp.einsum('bij,bjk->ibk', x, y)", (4, 3, 4)),
    ],
)
def test_a_value_is_that_of_the_expression_which_ends_with_it(
    function: Callable[..., jax.Array], text: str, dims: tuple[int, ...]
) -> None:
    """Of a product that is transposed only the end has the dims of the call's value."""
    module = hs.trace(function)(jnp.ones((3, 4, 4)), jnp.ones((3, 4, 4)))
    found = {expression(place): values for place, values in places(module).items()}
    [value] = found[text]
    assert value.shape.dims == dims
    assert f"jnp.sin({text})" in found
