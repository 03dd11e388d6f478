"""Resize: each dim by itself, a product with a matrix of weights; the nearest element is picked instead.

Floor: onnx.  Weights are computed while the model is read, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.element_types import is_float
from hlosharding.onnx.operators.interpolation import CUBIC, cubic_kernel, linear_kernel
from hlosharding.onnx.operators.quantization import limits
from hlosharding.onnx.operators.table import operator


@dataclass(frozen=True)
class _ResizedDim:
    """How one dim is resized."""

    dim: int
    old: int
    new: int
    scale: float
    roi: tuple[float, float]

    @property
    def changes(self) -> bool:
        return not (self.old == self.new and math.isclose(self.scale, 1) and np.allclose(self.roi, (0, 1)))


_ROUNDED: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@operator("Resize", 19, static="roi scales sizes")
def _resize(
    x: Any, roi: Any = None, scales: Any = None, sizes: Any = None,
    *, antialias: int = 0, axes: list[int] | None = None, coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = CUBIC, exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
) -> Any:  # fmt: skip
    x = jnp.asarray(x)
    kernel = _kernel(mode, cubic_coeff_a)
    out = x if kernel is None else x.astype(_computed_in(x.dtype))
    for axis in _axes(x.shape, axes, roi, scales, sizes, keep_aspect_ratio_policy, coordinate_transformation_mode):
        if not axis.changes:
            continue
        places = _places(axis, coordinate_transformation_mode)
        if kernel is None:
            # In float32 an element that is meant to lie on another does: 3 / float32(0.6) is 5.
            picked = np.clip(_ROUNDED[nearest_mode](places.astype(np.float32)), 0, axis.old - 1).astype(np.int64)
            out = jnp.take(out, picked, axis.dim)
        else:
            weights = _weights(places, axis, kernel, bool(antialias), bool(exclude_outside))
            out = _weighted(out, weights, axis.dim)
        if coordinate_transformation_mode == "tf_crop_and_resize":
            out = _extrapolated(out, places, axis, extrapolation_value)
    return _back(out, x.dtype)


def _kernel(mode: str, a: float) -> Callable[[Any], Any] | None:
    if mode not in ("nearest", "linear", "cubic"):
        raise LoadError(f"mode {mode!r} is not handled")
    return {"nearest": None, "linear": linear_kernel, "cubic": lambda d: cubic_kernel(d, a)}[mode]


def _axes(
    shape: tuple[int, ...], axes: list[int] | None, roi: Any, scales: Any, sizes: Any, policy: str, mode: str
) -> list[_ResizedDim]:
    dims = [d % len(shape) for d in (range(len(shape)) if axes is None else axes)]
    old = [shape[d] for d in dims]
    if sizes is not None and np.size(sizes):
        new, factors = _from_sizes(old, [int(n) for n in sizes], policy)
    elif scales is not None and np.size(scales):
        factors = [float(s) for s in scales]
        new = [int(n * s) for n, s in zip(old, factors, strict=True)]
    else:
        raise LoadError("neither scales nor sizes are given")
    crops = [(0.0, 1.0)] * len(dims)
    if mode == "tf_crop_and_resize":
        ends = [float(r) for r in roi]
        crops = list(zip(ends[: len(dims)], ends[len(dims) :], strict=True))
    return [_ResizedDim(*each) for each in zip(dims, old, new, factors, crops, strict=True)]


def _from_sizes(old: Sequence[int], new: Sequence[int], policy: str) -> tuple[list[int], list[float]]:
    factors = [n / o for n, o in zip(new, old, strict=True)]
    if policy == "stretch":
        return list(new), factors
    one = {"not_larger": min, "not_smaller": max}[policy](factors)
    # ONNX rounds halves up; Python's `round` takes the even number.
    return [int(one * o + 0.5) for o in old], [one] * len(old)


def _places(axis: _ResizedDim, mode: str) -> Any:
    """Where in the old dim each new element lies."""
    charge_array((axis.new,))
    numbers = np.arange(axis.new, dtype=np.float64)
    # No whole number, perhaps, and not `new`: `align_corners` divides by it so in ONNX's own tests.
    wanted = axis.old * axis.scale
    match mode:
        case "half_pixel":
            return (numbers + 0.5) / axis.scale - 0.5
        case "half_pixel_symmetric":
            return axis.old / 2 * (1 - axis.new / wanted) + (numbers + 0.5) / axis.scale - 0.5
        case "pytorch_half_pixel":
            return (numbers + 0.5) / axis.scale - 0.5 if wanted != 1 else np.full(axis.new, -0.5)
        case "align_corners":
            return numbers * ((axis.old - 1) / (wanted - 1)) if wanted != 1 else np.zeros(axis.new)
        case "asymmetric":
            return numbers / axis.scale
        case "tf_crop_and_resize":
            start, end = axis.roi
            if wanted == 1:
                return np.full(axis.new, (start + end) / 2 * (axis.old - 1))
            return start * (axis.old - 1) + numbers * (end - start) * (axis.old - 1) / (wanted - 1)
        case _:
            raise LoadError(f"coordinate_transformation_mode {mode!r} is not handled")


def _weights(
    places: Any, axis: _ResizedDim, kernel: Callable[[Any], Any], antialias: bool, exclude_outside: bool
) -> Any:
    """[new, old]: how much of each old element is in each new one; the border elements go on outside."""
    narrow = min(axis.scale, 1.0) if antialias else 1.0
    margin = math.ceil(2 / narrow) + 1
    charge_array((axis.new, axis.old + 2 * margin))
    taps = np.arange(-margin, axis.old + margin)
    # Of a place far outside, what matters is that it is outside.
    centres = np.clip(places, -1.0 * margin + 2 / narrow, axis.old - 1 + margin - 2 / narrow)
    # The kernels are of jax.numpy, and JAX is tracing: their results would be traced arrays, not numbers.
    with jax.ensure_compile_time_eval():
        weights = np.asarray(kernel((taps - centres[:, None]) * narrow), np.float64)
    if exclude_outside:
        weights = np.where((taps >= 0) & (taps < axis.old), weights, 0)
    if exclude_outside or antialias:
        weights = weights / weights.sum(1, keepdims=True)
    folded = weights[:, margin : margin + axis.old].copy()
    folded[:, 0] += weights[:, :margin].sum(1)
    folded[:, -1] += weights[:, margin + axis.old :].sum(1)
    return folded


def _weighted(x: Any, weights: Any, dim: int) -> Any:
    out = jnp.tensordot(x, weights.astype(x.dtype), ((dim,), (1,)), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(out, -1, dim)


def _extrapolated(x: Any, places: Any, axis: _ResizedDim, value: float) -> Any:
    outside = (places < 0) | (places > axis.old - 1)
    shape = [-1 if dim == axis.dim else 1 for dim in range(x.ndim)]
    return jnp.where(outside.reshape(shape), jnp.array(value, x.dtype), x)


def _computed_in(dtype: Any) -> Any:
    return dtype if is_float(dtype) and dtype.itemsize >= 4 else jnp.float32


def _back(x: Any, dtype: Any) -> Any:
    if x.dtype == dtype or is_float(dtype):
        return x.astype(dtype)
    return jnp.clip(jnp.round(x), *limits(dtype)).astype(dtype)
