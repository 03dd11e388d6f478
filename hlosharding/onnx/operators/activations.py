"""Activation functions.

Floor: onnx.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.convolution import along_channels
from hlosharding.onnx.operators.table import OLD, operator

_FORMULAS: dict[str, tuple[int, Callable[..., Any]]] = {
    "Celu": (28, lambda x, *, alpha=1.0: jnp.maximum(x, 0) + jnp.minimum(0, alpha * jnp.expm1(x / alpha))),
    "Elu": (22, lambda x, *, alpha=1.0: jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))),
    "HardSwish": (22, lambda x: x * jnp.clip(x / 6 + 0.5, 0, 1)),
    "LogSoftmax": (13, lambda x, *, axis=-1: jax.nn.log_softmax(x, axis)),
    "Mish": (22, lambda x: x * jnp.tanh(jax.nn.softplus(x))),
    "PRelu": (16, lambda x, slope: jnp.where(x >= 0, x, x * slope)),
    "Relu": (14, lambda x: jnp.maximum(x, jnp.zeros((), x.dtype))),
    "Softmax": (13, lambda x, *, axis=-1: jax.nn.softmax(x, axis)),
    "Swish": (24, lambda x, *, alpha=1.0: x * jax.nn.sigmoid(alpha * x)),
}
for _name, (_since, _function) in _FORMULAS.items():
    operator(_name, _since)(_function)


@operator("LeakyRelu", 16)
def leaky_relu(x: Any, *, alpha: float = 0.01) -> Any:
    """Negative numbers times `alpha`."""
    return jnp.where(x >= 0, x, x * alpha)


@operator("PRelu", 6, domain=OLD)
def _prelu_per_channel(x: Any, slope: Any) -> Any:
    return jnp.where(x >= 0, x, x * (along_channels(slope, x.ndim) if slope.ndim == 1 else slope))


@operator("ThresholdedRelu", 22)
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    """Zero up to `alpha`."""
    return jnp.where(x > alpha, x, jnp.zeros((), x.dtype))


@operator("Selu", 22)
def _selu(x: Any, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Any:
    return gamma * jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))


@operator("Gelu", 20)
def _gelu(x: Any, *, approximate: str = "none") -> Any:
    return {"none": gelu, "tanh": partial(jax.nn.gelu, approximate=True)}[approximate](x)


def gelu(x: Any) -> Any:
    """By the error function, which HLO has as one op; JAX's own writes its complement as polynomials."""
    return 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5)))


@operator("HardSigmoid", 22)
def hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    """A line, from 0 to 1."""
    return jnp.clip(alpha * x + beta, 0, 1)


@operator("Shrink", 9)
def _shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    low, high = (x + bias).astype(x.dtype), (x - bias).astype(x.dtype)
    return jnp.where(x < -lambd, low, jnp.where(x > lambd, high, jnp.zeros((), x.dtype)))


@operator("Hardmax", 13)
def _hardmax(x: Any, *, axis: int = -1) -> Any:
    return jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis)


# ---- by name, as recurrent ops take them

Function = Callable[[Any], Any]

_ACTIVATIONS: dict[str, tuple[Callable[..., Any], dict[str, float | None]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, {"alpha": None, "beta": None}),
    "elu": (jax.nn.elu, {"alpha": 1.0}),
    "hardsigmoid": (hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "leakyrelu": (leaky_relu, {"alpha": 0.01}),
    "relu": (lambda x: jnp.maximum(x, 0), {}),
    "scaledtanh": (lambda x, alpha, beta: alpha * jnp.tanh(beta * x), {"alpha": None, "beta": None}),
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
