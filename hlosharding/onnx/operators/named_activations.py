"""Activation functions that other operators name in an attribute.

Floor: onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.activations import hard_sigmoid, leaky_relu, thresholded_relu

Function = Callable[[Any], Any]


def _affine(x: Any, alpha: float, beta: float) -> Any:
    return alpha * x + beta


def _scaled_tanh(x: Any, alpha: float, beta: float) -> Any:
    return alpha * jnp.tanh(beta * x)


_ACTIVATIONS: dict[str, tuple[Callable[..., Any], dict[str, float | None]]] = {
    "affine": (_affine, {"alpha": None, "beta": None}),
    "elu": (jax.nn.elu, {"alpha": 1.0}),
    "hardsigmoid": (hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "leakyrelu": (leaky_relu, {"alpha": 0.01}),
    "relu": (lambda x: jnp.maximum(x, 0), {}),
    "scaledtanh": (_scaled_tanh, {"alpha": None, "beta": None}),
    "sigmoid": (jax.nn.sigmoid, {}),
    "softplus": (jax.nn.softplus, {}),
    "softsign": (jax.nn.soft_sign, {}),
    "tanh": (jnp.tanh, {}),
    "thresholdedrelu": (thresholded_relu, {"alpha": 1.0}),
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
    sources = {"alpha": alphas, "beta": betas}
    given = {parameter: next(sources[parameter], default) for parameter, default in defaults.items()}
    if None in given.values():
        raise LoadError(f"activation {name} without alpha and beta")
    return partial(function, **given)
