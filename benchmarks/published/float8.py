"""Products in float8, as float8 linears of training libraries have them: each operand is scaled first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

FLOAT8 = jnp.float8_e4m3fn
_FIXED = 224.0
_BATCH = "b"
"""The letter of sequences."""


class Scaling(NamedTuple):
    """By what: the largest element of the `array`, or of each of its `channels`, along what is summed, or of each of
    the `sequences` of a batch; or it is `fixed`, as that of weights is among sequences, and needs to know none."""

    forward: str
    backward: str
    """Of values and weights in the gradient's products; what was found forward is `fixed` there."""
    gradients: str
    clips: bool = False
    """Has a value outside of what the fixed scale allows no gradient?"""


SCALINGS: Mapping[str, Scaling] = {
    "dynamic": Scaling("array", "array", "array"),
    # torchao, by tensors of one device and microbatch; of weights the scales are found once a step, for their next
    "sequences": Scaling("sequences", "sequences", "sequences"),
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
        own = _scale(how, array, letters, out)
        narrow.append((array * own).astype(FLOAT8))
        scale = scale * _along(own, letters, out)
    wide = jnp.einsum(equation, *narrow, preferred_element_type=given[0].dtype)
    return wide / scale.astype(wide.dtype)


def _scale(how: str, array: jax.Array, letters: str, out: str) -> jax.Array:
    if how == "fixed" or (how == "sequences" and _BATCH not in letters):
        largest = jnp.full((1,) * array.ndim, _FIXED, jnp.float32)
    else:
        kept = {"channels": out, "sequences": _BATCH}.get(how, "")
        one = tuple(dim for dim, letter in enumerate(letters) if letter not in kept)
        largest = jnp.max(jnp.abs(array), one, keepdims=True).astype(jnp.float32)
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
    of_weights = f"{first},{out}->{second}"
    if values == "sequences":
        of_weight = _sum_of_sequences(of_weights, x, given)
    else:
        of_weight = _product(of_weights, (values, gradients), x, given)
    if not clips:
        return of_x, of_weight
    return tuple(jnp.where(jnp.abs(v) <= _FIXED, g, 0) for v, g in zip(kept, (of_x, of_weight), strict=True))


def _sum_of_sequences(equation: str, x: jax.Array, given: jax.Array) -> jax.Array:
    """The product that sums over sequences, each with a scale of its own that its gradient undoes."""
    letters = equation.partition(",")[0]
    own = _scale("sequences", x, letters, letters)
    undone = (_FIXED / own).reshape(-1, *(1,) * (given.ndim - 1))
    narrow = (x * own).astype(FLOAT8), (given * undone).astype(FLOAT8)
    wide = jnp.einsum(equation, *narrow, preferred_element_type=x.dtype)
    return wide / jnp.asarray(_FIXED, wide.dtype)


product8.defvjp(_forward, _backward)
