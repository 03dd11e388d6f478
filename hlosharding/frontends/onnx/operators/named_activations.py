"""Activation functions that other operators name in an attribute.

Floor: frontends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from hlosharding.errors import LoadError

Function = Callable[[Any], Any]


def _affine(x: Any, alpha: float, beta: float) -> Any:
    return alpha * x + beta


def _scaled_tanh(x: Any, alpha: float, beta: float) -> Any:
    return alpha * jnp.tanh(beta * x)


def _hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    return jnp.clip(alpha * x + beta, 0, 1)


_ACTIVATIONS: dict[str, tuple[Callable[..., Any], tuple[float | None, ...]]] = {
    "affine": (_affine, (None, None)),
    "elu": (jax.nn.elu, (1.0,)),
    "hardsigmoid": (_hard_sigmoid, (0.2, 0.5)),
    "leakyrelu": (lambda x, alpha: jnp.where(x >= 0, x, alpha * x), (0.01,)),
    "relu": (lambda x: jnp.maximum(x, 0), ()),
    "scaledtanh": (_scaled_tanh, (None, None)),
    "sigmoid": (jax.nn.sigmoid, ()),
    "softplus": (jax.nn.softplus, ()),
    "softsign": (jax.nn.soft_sign, ()),
    "tanh": (jnp.tanh, ()),
    "thresholdedrelu": (lambda x, alpha: jnp.where(x > alpha, x, 0), (1.0,)),
}
"""By name in lower case the function, and what alpha and beta are where a model gives none; None: it must."""


def activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    """A function by its name; it takes its parameters from the lists that one attribute gives for several functions.

    >>> activation("LeakyRelu", iter([0.5]), iter([]))(jnp.array([-2.0, 2.0])).tolist()
    [-1.0, 2.0]
    """
    if name.lower() not in _ACTIVATIONS:
        raise LoadError(f"activation {name!r} is not handled")
    function, defaults = _ACTIVATIONS[name.lower()]
    given = [next(source, default) for source, default in zip((alphas, betas), defaults, strict=False)]
    if None in given:
        raise LoadError(f"activation {name} without alpha and beta")
    return lambda x: function(x, *given)
