"""Convolutions, each one `lax.conv_general_dilated`, so that batch and features can be split.

Floor: onnx.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.operators.interpolation import linear_taps, sample_image
from hlosharding.onnx.operators.shapes import ints
from hlosharding.onnx.operators.table import operator
from hlosharding.onnx.operators.windows import Ints, Window, pair_pads, split_total, window_over


def along_channels(values: Any, rank: int) -> Any:
    """A vector, one number per channel, as it broadcasts against images of a rank; a scalar as it is."""
    return values if np.size(values) == 1 else jnp.reshape(values, (1, -1, *(1,) * (rank - 2)))


def convolve(
    x: Any, w: Any, *, auto_pad: str, dilations: Ints, group: int, kernel_shape: Ints, pads: Ints, strides: Ints
) -> Any:
    """A convolution of images [N, C, ...] with a kernel [M, C / group, ...]."""
    window = window_over(
        x.shape[2:], w.shape[2:], auto_pad=auto_pad, pads=pads, strides=strides, dilations=dilations
    )  # fmt: skip
    if kernel_shape is not None and tuple(kernel_shape) != window.kernel:
        raise LoadError(f"kernel_shape {list(kernel_shape)}, and the weight is {list(w.shape)}")
    return lax.conv_general_dilated(
        x, w, window.strides, window.padding, rhs_dilation=window.dilations, feature_group_count=group
    )


@operator("Conv", 22)
def _conv(
    x: Any, w: Any, b: Any = None,
    *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None, pads: Ints = None,
    strides: Ints = None,
) -> Any:  # fmt: skip
    out = convolve(
        x, w, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides
    )
    return out if b is None else out + along_channels(b, out.ndim)


@operator("ConvTranspose", 22)
def _conv_transpose(
    x: Any, w: Any, b: Any = None,
    *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None,
    output_padding: Ints = None, output_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Any:  # fmt: skip
    rank = x.ndim - 2
    steps, gaps = list(strides or [1] * rank), list(dilations or [1] * rank)
    extents = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], gaps, strict=True)]
    rows = zip(x.shape[2:], steps, extents, output_padding or [0] * rank, strict=True)
    full = [(size - 1) * step + extent + more for size, step, extent, more in rows]
    same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    if output_shape is None and same:
        output_shape = [size * step for size, step in zip(x.shape[2:], steps, strict=True)]
    if output_shape is not None:
        sizes = list(output_shape)[-rank:]
        totals = [max(0, whole - size) for whole, size in zip(full, sizes, strict=True)]
        # By ONNX's formula the odd one is in front unless SAME_UPPER is said, with pads of nobody's choice, too.
        lows = [split_total(total, lower=auto_pad != "SAME_UPPER")[0] for total in totals]
    else:
        sides = pair_pads(pads or [0] * (2 * rank), rank)
        sizes = [whole - low - high for whole, (low, high) in zip(full, sides, strict=True)]
        lows = [low for low, _ in sides]
    out = _transposed(x, w, group, steps, gaps, lows, sizes)
    return out if b is None else out + along_channels(b, out.ndim)


def _transposed(
    x: Any, w: Any, group: int, strides: Sequence[int], dilations: Sequence[int], lows: Sequence[int],
    sizes: Sequence[int],
) -> Any:  # fmt: skip
    """What a convolution with `w` [C, M / group, ...] does backwards: images of `sizes`, `lows` cut off in front."""
    kernel = w.shape[2:]
    w = jnp.reshape(w, (group, -1, *w.shape[1:])).swapaxes(1, 2)
    w = jnp.flip(jnp.reshape(w, (-1, *w.shape[2:])), tuple(range(2, w.ndim - 1)))
    padding: list[tuple[int, int]] = []
    for size, step, k, d, low, wanted in zip(x.shape[2:], strides, kernel, dilations, lows, sizes, strict=True):
        extent = (k - 1) * d + 1
        before = extent - 1 - low
        # Either side may be less than nothing: XLA cuts there.
        padding.append((before, wanted + extent - 1 - before - ((size - 1) * step + 1)))
    return lax.conv_general_dilated(
        x, w, (1,) * len(kernel), padding, strides, dilations, feature_group_count=group
    )  # fmt: skip


@operator("Col2Im", 18, static="image_shape block_shape")
def _col2im(
    x: Any, image_shape: Any, block_shape: Any, *, dilations: Ints = None, pads: Ints = None, strides: Ints = None
) -> Any:
    image, block = ints(image_shape), ints(block_shape)
    window = window_over(image, block, pads=pads, strides=strides, dilations=dilations)
    taps = math.prod(block)
    columns = jnp.reshape(x, (*x.shape[:2], *window.counts))
    channels = x.shape[1] // taps
    charge_array((channels, taps, taps))
    # Backwards through a convolution that copies each element of a window into a feature of its own.
    copies = np.tile(np.eye(taps).reshape(taps, 1, *block), (channels, *(1,) * (len(block) + 1))).astype(x.dtype)
    lows = [low for low, _ in window.pads]
    return _transposed(columns, copies, channels, window.strides, window.dilations, lows, image)


@operator("DeformConv", 22)
def _deform_conv(
    x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None,
    *, dilations: Ints = None, group: int = 1, kernel_shape: Ints = None, offset_group: int = 1, pads: Ints = None,
    strides: Ints = None,
) -> Any:  # fmt: skip
    window = window_over(x.shape[2:], w.shape[2:], pads=pads, strides=strides, dilations=dilations)
    rank, batch = len(window.sizes), x.shape[0]
    parted = jnp.reshape(x, (batch, offset_group, -1, *window.sizes))
    moved = jnp.reshape(offset, (batch, offset_group, *window.kernel, rank, *window.counts))
    taps = [linear_taps(_shifted(moved, window, dim)) for dim in range(rank)]
    columns = jax.vmap(jax.vmap(sample_image))(parted, [t[0] for t in taps], [t[1].astype(x.dtype) for t in taps])
    if mask is not None:
        columns = columns * jnp.reshape(mask, (batch, offset_group, 1, *window.kernel, *window.counts))
    columns = jnp.reshape(columns, (batch, group, -1, math.prod(window.kernel), *window.counts))
    kernel = jnp.reshape(w, (group, w.shape[0] // group, w.shape[1], -1))
    out = jnp.einsum("ngck...,gmck->ngm...", columns, kernel)
    out = jnp.reshape(out, (batch, w.shape[0], *window.counts)).astype(x.dtype)
    return out if b is None else out + along_channels(b, out.ndim)


def _shifted(moved: Any, window: Window, dim: int) -> Any:
    """Where along one dim every element of every window lies: [N, groups, *kernel, *counts]."""
    rank = len(window.sizes)
    shape = [1] * (2 * rank)
    shape[dim], shape[rank + dim] = window.kernel[dim], window.counts[dim]
    plain = window.places(dim).T.reshape(shape).astype(moved.dtype)
    return plain + moved[(slice(None), slice(None), *[slice(None)] * rank, dim)]
