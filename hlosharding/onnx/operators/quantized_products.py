"""Products of numbers of few bits: summed up exactly in 32 bits, then scaled.

Floor: onnx.  After ONNX and ONNX Runtime's ContribOperators.md (domain com.microsoft).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from hlosharding.onnx.operators.convolution import along_channels, convolve
from hlosharding.onnx.operators.quantization import dynamically_quantized, quantize, subtract_zero
from hlosharding.onnx.operators.table import MICROSOFT, operator
from hlosharding.onnx.operators.windows import Ints


def _per_row(values: Any) -> Any:
    """Scales or zero points of a left operand: one in all, one per row, or as they broadcast already."""
    return values[:, None] if values is not None and values.ndim == 1 and values.size > 1 else values


def exact_product(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """(a - a_zero) @ (b - b_zero) in 32 bits.

    >>> exact_product(np.uint8([[1, 2]]), np.uint8([[3], [4]]), np.uint8(1)).tolist()
    [[4]]
    """
    return jnp.matmul(subtract_zero(a, _per_row(a_zero)), subtract_zero(b, b_zero), preferred_element_type=jnp.int32)


def _joined(*factors: Any) -> Any:
    """A product of scales in float32, as ONNX Runtime forms it."""
    out: Any = 1.0
    for factor in factors:
        out = out * jnp.asarray(factor).astype(jnp.float32)
    return out


def _requantized(total: Any, scale: Any, y_scale: Any, y_zero: Any, dtype: Any) -> Any:
    factor = scale / jnp.asarray(y_scale).astype(jnp.float32)
    return quantize(total.astype(jnp.float32) * factor, y_zero, dtype)


@operator("MatMulInteger", 10)
def _matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return exact_product(a, b, a_zero, b_zero)


@operator("QLinearMatMul", 21)
def _qlinear_matmul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    scale = _joined(_per_row(a_scale), b_scale)
    return _requantized(exact_product(a, b, a_zero, b_zero), scale, _per_row(y_scale), _per_row(y_zero), y_zero.dtype)


@operator("ConvInteger", 10)
def _conv_integer(
    x: Any, w: Any, x_zero: Any = None, w_zero: Any = None,
    *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None, pads: Ints = None,
    strides: Ints = None,
) -> Any:  # fmt: skip
    # A zero point per output channel is one per row of the kernel.
    kernel_zero = w_zero if w_zero is None or np.size(w_zero) == 1 else jnp.reshape(w_zero, (-1, *(1,) * (w.ndim - 1)))
    return convolve(
        subtract_zero(x, x_zero), subtract_zero(w, kernel_zero), auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip


@operator("QLinearConv", 10)
def _qlinear_conv(
    x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any, b: Any = None,
    *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None, pads: Ints = None,
    strides: Ints = None,
) -> Any:  # fmt: skip
    total = _conv_integer(
        x, w, x_zero, w_zero, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    if b is not None:
        total = total + along_channels(b, total.ndim)
    scale = _joined(x_scale, along_channels(w_scale, total.ndim))
    return _requantized(total, scale, y_scale, y_zero, y_zero.dtype)


@operator("QLinearConv", 1, domain=MICROSOFT)
def _qlinear_conv_of_microsoft(
    x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any, b: Any = None,
    *, auto_pad: str = "NOTSET", channels_last: int = 0, dilations: Ints = None, group: int = 1,
    kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Any:  # fmt: skip
    out = _qlinear_conv(
        jnp.moveaxis(x, -1, 1) if channels_last else x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b,
        auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return jnp.moveaxis(out, 1, -1) if channels_last else out


@operator("QGemm", 1, domain=MICROSOFT)
def _qgemm(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c: Any = None, y_scale: Any = None,
    y_zero: Any = None, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Any:  # fmt: skip
    total = exact_product(a.T if transA else a, b.T if transB else b, a_zero, b_zero)
    if c is not None:
        total = total + c
    scale = _joined(alpha, a_scale, b_scale)
    if y_scale is None:
        return (total.astype(jnp.float32) * scale).astype(a_scale.dtype)
    return _requantized(total, scale, y_scale, y_zero, y_zero.dtype if y_zero is not None else a.dtype)


@operator("MatMulIntegerToFloat", 1, domain=MICROSOFT)
def _matmul_integer_to_float(
    a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None, bias: Any = None
) -> Any:
    total = exact_product(a, b, a_zero, b_zero)
    out = (total.astype(jnp.float32) * _joined(_per_row(a_scale), b_scale)).astype(a_scale.dtype)
    return out if bias is None else out + bias


@operator("DynamicQuantizeMatMul", 1, domain=MICROSOFT)
def _dynamic_quantize_matmul(a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None) -> Any:
    small, a_scale, a_zero = dynamically_quantized(a)
    return _matmul_integer_to_float(small, b, a_scale, b_scale, a_zero, b_zero, bias)


@operator("MatMulNBits", 1, domain=MICROSOFT)
def _matmul_n_bits(
    a: Any, b: Any, scales: Any, zero_points: Any = None, g_idx: Any = None, bias: Any = None,
    *, K: int, N: int, accuracy_level: int = 0, bits: int = 4, block_size: int, weight_prepacked: int = 0,
) -> Any:  # fmt: skip
    del accuracy_level  # says how roughly a kernel may compute
    if g_idx is not None or weight_prepacked:
        raise NotImplementedError("MatMulNBits with g_idx or weights packed for one kernel")
    blocks = -(-K // block_size)
    numbers = _unpacked(jnp.reshape(b, (N, blocks, -1)), bits, block_size).astype(scales.dtype)
    if zero_points is None:
        zero: Any = 2 ** (bits - 1)
    elif zero_points.dtype == np.uint8:
        zero = _unpacked(jnp.reshape(zero_points, (N, -1)), bits, blocks)[..., None].astype(scales.dtype)
    else:
        zero = jnp.reshape(zero_points, (N, blocks, 1))
    weight = jnp.reshape((numbers - zero) * jnp.reshape(scales, (N, blocks, 1)), (N, blocks * block_size))[:, :K]
    out = jnp.matmul(a, weight.astype(a.dtype).T)
    return out if bias is None else out + bias


def _unpacked(packed: Any, bits: int, count: int) -> Any:
    """Numbers of `bits` bits that lie in bytes, the lowest bits first, in the last dim; the first `count` of them."""
    if bits not in (2, 4, 8):
        raise NotImplementedError(f"MatMulNBits of {bits} bits")
    shifts = jnp.arange(0, 8, bits, dtype=jnp.uint8)
    parts = (jnp.asarray(packed)[..., None] >> shifts) & np.uint8(2**bits - 1)
    return jnp.reshape(parts, (*packed.shape[:-1], -1))[..., :count]
