"""Operators that only rearrange elements, and those that ask for shapes.

Floor: onnx.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.element_types import dtype_of, is_float, precision_of
from hlosharding.onnx.operators.casting import converted_to_dtype
from hlosharding.onnx.operators.table import operator


def ints(values: Any) -> tuple[int, ...]:
    """Dims, axes or the like, of an array that is known."""
    charge_array(np.shape(values), 32)
    return tuple(int(v) for v in np.asarray(values).reshape(-1))


@operator("Shape", 25)
def _shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(x.shape[start:end], np.int64)


@operator("Size", 25)
def _size(x: Any) -> Any:
    return np.array(math.prod(x.shape), np.int64)


@operator("Reshape", 25, static="shape")
def _reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    wanted = [x.shape[n] if size == 0 and not allowzero else size for n, size in enumerate(ints(shape))]
    if allowzero and 0 in wanted and -1 in wanted:
        raise LoadError("a reshape to a shape with both 0 and -1")
    return jnp.reshape(x, wanted)


@operator("Flatten", 25)
def _flatten(x: Any, *, axis: int = 1) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    return jnp.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose", 25)
def _transpose(x: Any, *, perm: list[int] | None = None) -> Any:
    return jnp.transpose(x, perm)


@operator("Squeeze", 25, static="axes")
def _squeeze(x: Any, axes: Any = None) -> Any:
    return jnp.squeeze(x, None if axes is None else ints(axes))


@operator("Unsqueeze", 25, static="axes")
def _unsqueeze(x: Any, axes: Any) -> Any:
    return jnp.expand_dims(x, ints(axes))


@operator("Expand", 13, static="shape")
def _expand(x: Any, shape: Any) -> Any:
    return jnp.broadcast_to(x, np.broadcast_shapes(x.shape, ints(shape)))


@operator("Tile", 13, static="repeats")
def _tile(x: Any, repeats: Any) -> Any:
    return jnp.tile(x, ints(repeats))


@operator("Concat", 13)
def _concat(*xs: Any, axis: int) -> Any:
    return jnp.concatenate(xs, axis)


@operator("Split", 18, static="split")
def _split(x: Any, split: Any = None, *, axis: int = 0, num_outputs: int | None = None, node: Any) -> Any:
    if split is None:
        count = len(node.wanted)
        if num_outputs not in (None, count):
            raise LoadError(f"{count} outputs, and num_outputs is {num_outputs}")
        each = -(-x.shape[axis] // count)
        sizes = [max(0, min(each, x.shape[axis] - n * each)) for n in range(count)]
    else:
        sizes = list(ints(split))
    if sum(sizes) != x.shape[axis]:
        raise LoadError(f"parts of {sizes} do not make up a dim of {x.shape[axis]}")
    return tuple(jnp.split(x, np.cumsum(sizes)[:-1], axis))


@operator("Slice", 13, static="starts ends axes steps")
def _slice(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    first, last = ints(starts), ints(ends)
    dims = range(len(first)) if axes is None else ints(axes)
    strides = (1,) * len(first) if steps is None else ints(steps)
    wanted = [slice(None)] * x.ndim
    for start, end, dim, step in zip(first, last, dims, strides, strict=True):
        size = x.shape[dim]
        # Python reads -1 as the last element, ONNX, after clamping, as the place before the first.
        lowest = end + size if end < 0 else end
        wanted[dim] = slice(start, None if step < 0 and lowest < 0 else end, step)
    return x[tuple(wanted)]


@operator("Pad", 25, static="pads axes")
def _pad(x: Any, pads: Any, constant_value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    dims = range(x.ndim) if axes is None else ints(axes)
    sizes = ints(pads)
    width = [(0, 0)] * x.ndim
    for n, dim in enumerate(dims):
        width[dim] = sizes[n], sizes[n + len(dims)]
    # Where a pad is negative ONNX cuts, and `jnp.pad` refuses it.
    cut = tuple(slice(max(0, -low), x.shape[d] - max(0, -high)) for d, (low, high) in enumerate(width))
    x, width = x[cut], [(max(0, low), max(0, high)) for low, high in width]
    if mode == "constant":
        value = jnp.zeros((), x.dtype) if constant_value is None else jnp.reshape(constant_value, ()).astype(x.dtype)
        return jnp.pad(x, width, constant_values=value)
    return jnp.pad(x, width, mode={"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode])


@operator("ConstantOfShape", 25, static="shape")
def _constant_of_shape(shape: Any, *, value: Any = None) -> Any:
    value = np.zeros((1,), np.float32) if value is None else value
    return jnp.full(ints(shape), value.reshape(()), value.dtype)


@operator("Range", 27, static="start limit delta")
def _range(start: Any, limit: Any, delta: Any, *, stash_type: int = 1) -> Any:
    start, limit, delta = (each.reshape(()) for each in (start, limit, delta))
    wide = precision_of(stash_type) if is_float(start.dtype) and start.dtype.itemsize == 2 else start.dtype
    count = max(0, math.ceil((limit.item() - start.item()) / delta.item()))
    return (jnp.arange(count).astype(wide) * delta.astype(wide) + start.astype(wide)).astype(start.dtype)


@operator("EyeLike", 22)
def _eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    return converted_to_dtype(jnp.eye(*x.shape, k=k), x.dtype if dtype is None else dtype_of(dtype))


@operator("Trilu", 14, static="k")
def _trilu(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    diagonal = 0 if k is None else int(k.reshape(()))
    return jnp.triu(x, diagonal) if upper else jnp.tril(x, diagonal)


@operator("DepthToSpace", 28)
def _depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    depth = c // blocksize**2
    if mode == "DCR":
        parts = jnp.reshape(x, (n, blocksize, blocksize, depth, h, w)).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = jnp.reshape(x, (n, depth, blocksize, blocksize, h, w)).transpose(0, 1, 4, 2, 5, 3)
    return jnp.reshape(parts, (n, depth, h * blocksize, w * blocksize))


@operator("SpaceToDepth", 28)
def _space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    order = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}[mode]
    parts = jnp.reshape(x, (n, c, h // blocksize, blocksize, w // blocksize, blocksize)).transpose(order)
    return jnp.reshape(parts, (n, c * blocksize**2, h // blocksize, w // blocksize))
