"""Products in float8, as float8 linears of training libraries have them: each operand is scaled first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

FLOAT8 = jnp.float8_e4m3fn
_FIXED = 224.0


class Scaling(NamedTuple):
    """By what: the largest element of the `array`, or of each of its `channels`, along what is summed; or it is
    `fixed`, and needs to know none."""

    forward: str
    backward: str
    """Of values and weights in the gradient's products; what was found forward is `fixed` there."""
    gradients: str
    clips: bool = False
    """Has a value outside of what the fixed scale allows no gradient?"""


SCALINGS: Mapping[str, Scaling] = {
    "dynamic": Scaling("array", "array", "array"),  # torchao, by tensors
    "fixed": Scaling("fixed", "fixed", "fixed"),
    "channels": Scaling("channels", "fixed", "channels"),  # Qwix, `absmax`
    "calibrated": Scaling("fixed", "fixed", "channels", clips=True),  # Qwix, values and weights `fixed`
}


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def product8(equation: str, scaling: str, x: jax.Array, weight: jax.Array) -> jax.Array:
    """`jnp.einsum` of two operands, and both products of its gradient, in float8; all else is of the type of `x`.

    `scaling`: a name of `SCALINGS`.
    """
    how = SCALINGS[scaling].forward
    return _product(equation, (how, how), x, weight)


def _product(equation: str, scalings: tuple[str, str], *given: jax.Array) -> jax.Array:
    operands, out = equation.split("->")
    narrow: list[jax.Array] = []
    scale = jnp.float32(1)
    for how, letters, array in zip(scalings, operands.split(","), given, strict=True):
        own = _scale(how, array, tuple(dim for dim, letter in enumerate(letters) if letter not in out))
        narrow.append((array * own).astype(FLOAT8))
        scale = scale * _along(own, letters, out)
    wide = jnp.einsum(equation, *narrow, preferred_element_type=given[0].dtype)
    return wide / scale.astype(wide.dtype)


def _scale(how: str, array: jax.Array, summed: tuple[int, ...]) -> jax.Array:
    if how == "fixed":
        largest = jnp.full((1,) * array.ndim, _FIXED, jnp.float32)
    else:
        largest = jnp.max(jnp.abs(array), summed if how == "channels" else None, keepdims=True).astype(jnp.float32)
    return jnp.finfo(FLOAT8).max.astype(jnp.float32) / jnp.maximum(largest, 1e-12)


def _along(scale: jax.Array, letters: str, out: str) -> jax.Array:
    """An operand's scale as it goes with the result's dims; what is summed has one."""
    kept = [letters.index(letter) for letter in out if letter in letters]
    order = (*kept, *(dim for dim in range(len(letters)) if dim not in kept))
    sizes = [scale.shape[letters.index(letter)] if letter in letters else 1 for letter in out]
    return scale.transpose(order).reshape(sizes)


Kept = tuple[jax.Array, jax.Array]


def _forward(equation: str, scaling: str, x: jax.Array, weight: jax.Array) -> tuple[jax.Array, Kept]:
    return product8(equation, scaling, x, weight), (x, weight)


def _backward(equation: str, scaling: str, kept: Kept, given: jax.Array) -> tuple[jax.Array, ...]:
    x, weight = kept
    operands, _, out = equation.partition("->")
    first, second = operands.split(",")
    _, values, gradients, clips = SCALINGS[scaling]
    of_x = _product(f"{out},{second}->{first}", (gradients, values), given, weight)
    of_weight = _product(f"{first},{out}->{second}", (values, gradients), x, given)
    if not clips:
        return of_x, of_weight
    return tuple(jnp.where(jnp.abs(v) <= _FIXED, g, 0) for v, g in zip(kept, (of_x, of_weight), strict=True))


product8.defvjp(_forward, _backward)
