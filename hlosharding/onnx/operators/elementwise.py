"""Operators that work element by element.

Floor: onnx.  Where JAX promotes a type that ONNX keeps, the result is converted back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.element_types import dtype_of, is_float
from hlosharding.onnx.operators.casting import cast_to, converted_to_dtype
from hlosharding.onnx.operators.table import operator

_SAME_IN_JAX: dict[str, tuple[int, Callable[..., Any]]] = {
    "Abs": (13, jnp.abs),
    "Acos": (22, jnp.arccos),
    "Acosh": (22, jnp.arccosh),
    "Add": (14, jnp.add),
    "And": (7, jnp.logical_and),
    "Asin": (22, jnp.arcsin),
    "Asinh": (22, jnp.arcsinh),
    "Atan": (22, jnp.arctan),
    "Atanh": (22, jnp.arctanh),
    "BitwiseAnd": (18, jnp.bitwise_and),
    "BitwiseNot": (18, jnp.bitwise_not),
    "BitwiseOr": (18, jnp.bitwise_or),
    "BitwiseXor": (18, jnp.bitwise_xor),
    "Ceil": (13, jnp.ceil),
    "Cos": (22, jnp.cos),
    "Cosh": (22, jnp.cosh),
    "Equal": (19, jnp.equal),
    "Erf": (13, lax.erf),
    "Exp": (13, jnp.exp),
    "Floor": (13, jnp.floor),
    "Greater": (13, jnp.greater),
    "GreaterOrEqual": (16, jnp.greater_equal),
    "IsNaN": (20, jnp.isnan),
    "Less": (13, jnp.less),
    "LessOrEqual": (16, jnp.less_equal),
    "Log": (13, jnp.log),
    "Mul": (14, jnp.multiply),
    "Neg": (13, jnp.negative),
    "Not": (1, jnp.logical_not),
    "Or": (7, jnp.logical_or),
    "Reciprocal": (13, jnp.reciprocal),
    "Round": (22, jnp.round),
    "Sigmoid": (13, jax.nn.sigmoid),
    "Sign": (13, jnp.sign),
    "Sin": (22, jnp.sin),
    "Sinh": (22, jnp.sinh),
    "Softplus": (22, jax.nn.softplus),
    "Softsign": (22, jax.nn.soft_sign),
    "Sqrt": (13, jnp.sqrt),
    "Sub": (14, jnp.subtract),
    "Tan": (22, jnp.tan),
    "Tanh": (13, jnp.tanh),
    "Where": (16, jnp.where),
    "Xor": (7, jnp.logical_xor),
}


def _entered(name: str, since: int, function: Callable[..., Any], count: int) -> None:
    """Functions of JAX have parameters of their own; an operator's are its inputs."""
    if count == 1:
        operator(name, since)(lambda x: function(jnp.asarray(x)))
    elif count == 2:
        operator(name, since)(lambda a, b: function(jnp.asarray(a), jnp.asarray(b)))
    else:
        operator(name, since)(lambda a, b, c: function(jnp.asarray(a), jnp.asarray(b), jnp.asarray(c)))


_BINARY = frozenset(
    "Add And BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less LessOrEqual Mul Or Sub Xor".split()
)
for _name, (_since, _function) in _SAME_IN_JAX.items():
    _entered(_name, _since, _function, 3 if _name == "Where" else 2 if _name in _BINARY else 1)


@operator("Div", 14)
def _div(a: Any, b: Any) -> Any:
    a, b = jnp.asarray(a), jnp.asarray(b)
    if is_float(a.dtype):
        return a / b
    # ONNX divides whole numbers as C does, towards zero.
    return lax.div(*jnp.broadcast_arrays(a, b))


@operator("Mod", 28)
def _mod(a: Any, b: Any, *, fmod: int = 0) -> Any:
    return jnp.fmod(a, b) if fmod else jnp.mod(a, b)


@operator("Pow", 15, known="y")
def _pow(x: Any, y: Any) -> Any:
    x = jnp.asarray(x)
    if isinstance(y, np.ndarray) and y.size == 1 and float(y.reshape(())) == int(y.reshape(())):
        # A known whole exponent is a few products.
        return lax.integer_pow(jnp.broadcast_to(x, np.broadcast_shapes(x.shape, y.shape)), int(y.reshape(())))
    if not is_float(x.dtype) and is_float(y.dtype):
        return jnp.power(x.astype(y.dtype), y).astype(x.dtype)
    return jnp.power(x, jnp.asarray(y)).astype(x.dtype)


@operator("BitShift", 28)
def _bit_shift(x: Any, y: Any, *, direction: str) -> Any:
    return {"LEFT": jnp.left_shift, "RIGHT": jnp.right_shift}[direction](x, y)


@operator("Cast", 28)
def _cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return cast_to(x, to, saturate=bool(saturate), round_mode=round_mode)


@operator("CastLike", 25)
def _cast_like(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    return converted_to_dtype(x, like.dtype, saturate=bool(saturate), round_mode=round_mode)


@operator("BitCast", 26)
def _bit_cast(x: Any, *, to: int) -> Any:
    x, dtype = jnp.asarray(x), dtype_of(to)
    bits, wanted = map(jax.dtypes.itemsize_bits, (x.dtype, dtype))
    if bits != wanted:
        raise LoadError(f"{x.dtype} has {bits} bits, and {dtype} {wanted}")
    if dtype == np.bool_:
        return x != 0
    return lax.bitcast_convert_type(x.astype(jnp.uint8) if x.dtype == np.bool_ else x, dtype)


@operator("IsInf", 20)
def _is_inf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    x = jnp.asarray(x)
    found = jnp.zeros(x.shape, bool)
    if detect_positive:
        found |= jnp.isposinf(x)
    if detect_negative:
        found |= jnp.isneginf(x)
    return found


@operator("Clip", 13)
def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = jnp.asarray(x)
    if low is not None:
        x = jnp.maximum(x, low)
    return jnp.minimum(x, high) if high is not None else x


def _folded(name: str, since: int, function: Callable[[Any, Any], Any]) -> None:
    operator(name, since)(lambda *xs: reduce(function, map(jnp.asarray, xs)))


_folded("Max", 13, jnp.maximum)
_folded("Min", 13, jnp.minimum)
_folded("Sum", 13, jnp.add)


@operator("Mean", 13)
def _mean(*xs: Any) -> Any:
    return reduce(jnp.add, map(jnp.asarray, xs)) / len(xs)


@operator("Identity", 25, known="x")
def _identity(x: Any) -> Any:
    return x
