"""Reductions, cumulative ones among them.

Floor: onnx.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.element_types import bounds
from hlosharding.onnx.operators.shapes import ints
from hlosharding.onnx.operators.table import operator


# JAX refuses the largest of no elements without a first one; ONNX has the type's bound for it.
def _max(x: Any, axes: Any, keep: bool) -> Any:
    return jnp.max(x, axes, keepdims=keep, initial=bounds(x.dtype)[0])


def _min(x: Any, axes: Any, keep: bool) -> Any:
    return jnp.min(x, axes, keepdims=keep, initial=bounds(x.dtype)[1])


def _sum(x: Any, axes: Any, keep: bool) -> Any:
    return jnp.sum(x, axes, keepdims=keep, dtype=x.dtype)


_REDUCTIONS: dict[str, tuple[int, Callable[[Any, Any, bool], Any]]] = {
    "ReduceL1": (18, lambda x, axes, keep: _sum(jnp.abs(x), axes, keep)),
    "ReduceL2": (18, lambda x, axes, keep: jnp.sqrt(_sum(x * x, axes, keep)).astype(x.dtype)),
    "ReduceLogSum": (28, lambda x, axes, keep: jnp.log(_sum(x, axes, keep)).astype(x.dtype)),
    "ReduceLogSumExp": (28, lambda x, axes, keep: jax.nn.logsumexp(x, axes, keepdims=keep).astype(x.dtype)),
    "ReduceMax": (20, _max),
    "ReduceMean": (18, lambda x, axes, keep: jnp.mean(x, axes, keepdims=keep).astype(x.dtype)),
    "ReduceMin": (20, _min),
    "ReduceProd": (18, lambda x, axes, keep: jnp.prod(x, axes, keepdims=keep, dtype=x.dtype)),
    "ReduceSum": (13, _sum),
    "ReduceSumSquare": (18, lambda x, axes, keep: _sum(x * x, axes, keep)),
}


def _entered(name: str, since: int, reduce: Callable[[Any, Any, bool], Any]) -> None:
    @operator(name, since, static="axes")
    def _reduce(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        dims = ints(axes) if axes is not None else ()
        if not dims and not noop_with_empty_axes:
            dims = tuple(range(x.ndim))
        return reduce(jnp.asarray(x), dims, bool(keepdims))


for _name, (_since, _function) in _REDUCTIONS.items():
    _entered(_name, _since, _function)


def _place(name: str, find: Callable[..., Any]) -> None:
    @operator(name, 13)
    def _arg(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        if not select_last_index:
            return find(x, axis, keepdims=bool(keepdims)).astype(jnp.int64)
        from_end = find(jnp.flip(x, axis), axis, keepdims=bool(keepdims))
        return (x.shape[axis] - 1 - from_end).astype(jnp.int64)


_place("ArgMax", jnp.argmax)
_place("ArgMin", jnp.argmin)


def _cumulative(name: str, since: int, scan: Callable[..., Any], neutral: int) -> None:
    @operator(name, since, static="axis")
    def _cumulate(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
        dim = int(axis.reshape(())) % x.ndim
        if exclusive:
            cut = lax.slice_in_dim(x, 1, None, axis=dim) if reverse else lax.slice_in_dim(x, 0, -1, axis=dim)
            width = [(0, 0)] * x.ndim
            width[dim] = (0, 1) if reverse else (1, 0)
            x = jnp.pad(cut, width, constant_values=jnp.array(neutral, x.dtype))
        return scan(x, axis=dim, reverse=bool(reverse))


_cumulative("CumSum", 14, lax.cumsum, 0)
_cumulative("CumProd", 26, lax.cumprod, 1)


@operator("TopK", 24, static="k")
def _top_k(x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    del sorted  # sorted is one of the orders allowed where none is asked for
    moved = jnp.moveaxis(x, axis, -1)
    count = int(k.reshape(()))
    if not 0 <= count <= moved.shape[-1]:
        raise LoadError(f"the first {count} of a dim of {moved.shape[-1]}")
    indices = jnp.argsort(moved, axis=-1, descending=bool(largest), stable=True)[..., :count]
    values = jnp.take_along_axis(moved, indices, -1)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(indices, -1, axis).astype(jnp.int64)
