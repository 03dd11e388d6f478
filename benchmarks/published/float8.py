"""Products in float8, as float8 linears of training libraries have them: each operand scaled by its largest element."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

FLOAT8 = jnp.float8_e4m3fn


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def product8(equation: str, scaling: str, x: jax.Array, weight: jax.Array) -> jax.Array:
    """`jnp.einsum` of two operands, and both products of its gradient, in float8; all else is of the type of `x`.

    `scaling`: `dynamic`, by the largest element of the whole array, or `fixed`, which needs to know none.
    """
    return _product(equation, scaling, x, weight)


def _product(equation: str, scaling: str, x: jax.Array, weight: jax.Array) -> jax.Array:
    (narrow, scale), (other, other_scale) = _scaled(scaling, x), _scaled(scaling, weight)
    wide = jnp.einsum(equation, narrow, other, preferred_element_type=x.dtype)
    return wide / (scale * other_scale).astype(x.dtype)


def _scaled(scaling: str, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """In float8, and what it was multiplied by."""
    largest = jnp.max(jnp.abs(x)).astype(jnp.float32) if scaling == "dynamic" else jnp.float32(224)
    scale = jnp.finfo(FLOAT8).max.astype(jnp.float32) / jnp.maximum(largest, 1e-12)
    return (x * scale).astype(FLOAT8), scale


Kept = tuple[jax.Array, jax.Array]


def _forward(equation: str, scaling: str, x: jax.Array, weight: jax.Array) -> tuple[jax.Array, Kept]:
    return _product(equation, scaling, x, weight), (x, weight)


def _backward(equation: str, scaling: str, kept: Kept, given: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, weight = kept
    operands, _, out = equation.partition("->")
    first, second = operands.split(",")
    of_x = _product(f"{out},{second}->{first}", scaling, given, weight)
    return of_x, _product(f"{first},{out}->{second}", scaling, x, given)


product8.defvjp(_forward, _backward)
