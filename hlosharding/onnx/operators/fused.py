"""What ONNX Runtime's optimiser makes of several operators: one.

Floor: onnx.  Domain com.microsoft, after its ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.activations import activation, gelu
from hlosharding.onnx.operators.convolution import _conv
from hlosharding.onnx.operators.normalization import _layer_normalization, rms_normalized
from hlosharding.onnx.operators.products import _gemm
from hlosharding.onnx.operators.table import MICROSOFT, operator
from hlosharding.onnx.operators.windows import Ints


@operator("Gelu", 1, domain=MICROSOFT)
def _gelu(x: Any) -> Any:
    return gelu(x)


@operator("FastGelu", 1, domain=MICROSOFT)
def _fast_gelu(x: Any, bias: Any = None) -> Any:
    return jax.nn.gelu(x if bias is None else x + bias, approximate=True)


@operator("BiasGelu", 1, domain=MICROSOFT)
def _bias_gelu(x: Any, bias: Any) -> Any:
    return gelu(x + bias)


@operator("QuickGelu", 1, domain=MICROSOFT)
def _quick_gelu(x: Any, *, alpha: float = 1.702) -> Any:
    return x * jax.nn.sigmoid(alpha * x)


@operator("FusedMatMul", 1, domain=MICROSOFT)
def _fused_matmul(
    a: Any, b: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0
) -> Any:
    left, right = _turned(a, transA, transBatchA), _turned(b, transB, transBatchB)
    return jnp.matmul(left, right) * alpha


def _turned(x: Any, matrix: int, batch: int) -> Any:
    if batch:
        x = jnp.moveaxis(x, 0, -2)
    return jnp.swapaxes(x, -1, -2) if matrix and x.ndim > 1 else x


def _activated(x: Any, name: str, parameters: Sequence[float]) -> Any:
    if not name:
        return x
    if name == "Clip":
        return jnp.clip(x, *parameters)
    return activation(name, iter(parameters[:1]), iter(parameters[1:]))(x)


@operator("FusedConv", 1, domain=MICROSOFT)
def _fused_conv(
    x: Any, w: Any, b: Any = None, z: Any = None,
    *, activation: str = "", activation_params: Sequence[float] = (), auto_pad: str = "NOTSET", dilations: Ints = None,
    group: int = 1, kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Any:  # fmt: skip
    out = _conv(
        x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
        strides=strides,
    )  # fmt: skip
    return _activated(out if z is None else out + z, activation, activation_params)


@operator("FusedGemm", 1, domain=MICROSOFT)
def _fused_gemm(
    a: Any, b: Any, c: Any = None,
    *, activation: str = "", activation_alpha: float | None = None, activation_beta: float | None = None,
    alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> Any:  # fmt: skip
    given = [p for p in (activation_alpha, activation_beta) if p is not None]
    return _activated(_gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB), activation, given)


operator("LayerNormalization", 1, domain=MICROSOFT)(_layer_normalization)


@operator("SimplifiedLayerNormalization", 1, domain=MICROSOFT)
def _simplified_layer_normalization(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    return rms_normalized(x, scale, axis, epsilon, stash_type)


@operator("SkipLayerNormalization", 1, domain=MICROSOFT)
def _skip_layer_normalization(
    x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    total = x + skip if bias is None else x + skip + bias
    return *_layer_normalization(total, gamma, beta, epsilon=epsilon), total


@operator("SkipSimplifiedLayerNormalization", 1, domain=MICROSOFT)
def _skip_simplified_layer_normalization(
    x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    total = x + skip if bias is None else x + skip + bias
    out, inverse = _simplified_layer_normalization(total, gamma, epsilon=epsilon)
    # The mean, which is not taken, has a place among the outputs.
    return out, jnp.zeros_like(inverse), inverse, total


@operator("EmbedLayerNormalization", 1, domain=MICROSOFT)
def _embed_layer_normalization(
    ids: Any, segments: Any, words: Any, positions: Any, segment_words: Any, gamma: Any, beta: Any, mask: Any = None,
    position_ids: Any = None, *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> Any:  # fmt: skip
    places = jnp.take(positions, position_ids, 0) if position_ids is not None else positions[: ids.shape[1]]
    total = jnp.take(words, ids, 0) + places
    if segments is not None:
        total = total + jnp.take(segment_words, segments, 0)
    out, _, _ = _layer_normalization(total, gamma, beta, epsilon=epsilon)
    counts = jnp.zeros(ids.shape[0], jnp.int32) if mask is None else jnp.sum(mask, 1, dtype=jnp.int32)
    return out, counts, total


@operator("Attention", 1, domain=MICROSOFT)
def _attention(
    x: Any, weights: Any, bias: Any = None, mask: Any = None, past: Any = None, attention_bias: Any = None,
    *, mask_filter_value: float = -10000.0, num_heads: int, qkv_hidden_sizes: list[int] | None = None,
    scale: float = 0.0, unidirectional: int = 0, node: Any,
) -> Any:  # fmt: skip
    if past is not None or any(node.wanted[1:]):
        raise LoadError("com.microsoft Attention with past states is not handled")
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    together = jnp.matmul(x, weights) if bias is None else jnp.matmul(x, weights) + bias
    q, k, v = (
        jnp.reshape(part, (*part.shape[:2], num_heads, -1)) for part in jnp.split(together, np.cumsum(sizes)[:2], -1)
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (scale or q.shape[-1] ** -0.5)
    lowest = jnp.array(mask_filter_value, scores.dtype)
    if mask is not None:
        scores = scores + jnp.where(_seen(mask, scores.shape), 0, lowest)
    if unidirectional:
        scores = jnp.where(jnp.tri(*scores.shape[2:], dtype=bool), scores, lowest)
    if attention_bias is not None:
        scores = scores + attention_bias
    out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
    return jnp.reshape(out, (*out.shape[:2], -1))


def _seen(mask: Any, shape: tuple[int, ...]) -> Any:
    """Which keys each query sees: from lengths [batch], or truth values [batch, keys] or [batch, queries, keys]."""
    if mask.ndim == 1 and mask.shape[0] == shape[0]:
        return (jnp.arange(shape[3], dtype=mask.dtype) < mask[:, None])[:, None, None, :]
    if mask.ndim in (2, 3):
        return (mask > 0)[:, None, None, :] if mask.ndim == 2 else (mask > 0)[:, None]
    raise LoadError(f"com.microsoft Attention with a mask of shape {list(mask.shape)} is not handled")
