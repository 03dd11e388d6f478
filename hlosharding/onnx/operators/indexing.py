"""Gathers and scatters.

Floor: onnx.  Negative indices count from the end, as in ONNX.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.table import operator


def _from_start(indices: Any, size: int) -> Any:
    indices = jnp.asarray(indices)
    return jnp.where(indices < 0, indices + size, indices)


@operator("Gather", 13, known="indices")
def _gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    axis = axis % x.ndim
    size = x.shape[axis]
    if isinstance(indices, np.ndarray):
        wrong = indices[(indices < -size) | (indices >= size)]
        if wrong.size:
            raise LoadError(f"index {wrong.flat[0]} of a dim of {size}")
        if indices.ndim == 0:
            return lax.index_in_dim(x, int(indices) % size, axis, keepdims=False)
    return jnp.take(x, _from_start(indices, size), axis, mode="clip")


@operator("GatherElements", 13)
def _gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return x[_grid(indices, x, axis)]


def _grid(indices: Any, x: Any, axis: int) -> tuple[Any, ...]:
    """Per dim of `x` where each element of `indices` is read or written."""
    axis = axis % x.ndim
    own = jnp.meshgrid(*(jnp.arange(n) for n in indices.shape), indexing="ij", sparse=True)
    return tuple(_from_start(indices, x.shape[axis]) if d == axis else own[d] for d in range(x.ndim))


@operator("GatherND", 13)
def _gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    return jnp.asarray(x)[_places(x, indices, batch_dims)]


def _places(x: Any, indices: Any, batch_dims: int = 0) -> tuple[Any, ...]:
    depth = indices.shape[-1]
    batch = jnp.meshgrid(*(jnp.arange(n) for n in indices.shape[:batch_dims]), indexing="ij")
    wide = [b.reshape(b.shape + (1,) * (indices.ndim - 1 - batch_dims)) for b in batch]
    return (*wide, *(_from_start(indices[..., d], x.shape[batch_dims + d]) for d in range(depth)))


def _scattered(x: Any, places: Any, updates: Any, reduction: str) -> Any:
    at = jnp.asarray(x).at[places]
    write = {"none": at.set, "add": at.add, "mul": at.multiply, "max": at.max, "min": at.min}[reduction]
    return write(updates)


@operator("ScatterElements", 18)
def _scatter_elements(x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none") -> Any:
    return _scattered(x, _grid(indices, x, axis), updates, reduction)


@operator("ScatterND", 18)
def _scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    return _scattered(x, _places(x, indices), updates, reduction)


@operator("OneHot", 28, static="depth")
def _one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    count = int(depth.reshape(()))
    places = jnp.where(indices < 0, indices + count, indices).astype(jnp.int64)
    axis = axis % (indices.ndim + 1)
    numbers = lax.broadcasted_iota(jnp.int64, (*indices.shape[:axis], count, *indices.shape[axis:]), axis)
    return jnp.where(jnp.expand_dims(places, axis) == numbers, values[1], values[0])


@operator("ReverseSequence", 28)
def _reverse_sequence(x: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    moved = jnp.moveaxis(x, (batch_axis, time_axis), (0, 1))
    times = jnp.arange(moved.shape[1])[None, :]
    places = jnp.where(times < lengths[:, None], lengths[:, None] - 1 - times, times)
    found = jnp.take_along_axis(moved, places.reshape(places.shape + (1,) * (moved.ndim - 2)), 1)
    return jnp.moveaxis(found, (0, 1), (batch_axis, time_axis))
