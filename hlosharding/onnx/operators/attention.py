"""Attention in its forms, and what goes with it: rotary embeddings, caches, gated units.

Floor: onnx.  Query heads that share a key head are a dim of their own while products are taken, so that no key is
copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.element_types import precision_of
from hlosharding.onnx.operators.table import operator


def _split_heads(x: Any, heads: int) -> Any:
    """[batch, sequence, heads * size] as [batch, heads, sequence, size]."""
    return jnp.swapaxes(jnp.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads)), 1, 2)


def _merged_heads(x: Any) -> Any:
    batch, heads, length, size = x.shape
    return jnp.reshape(jnp.swapaxes(x, 1, 2), (batch, length, heads * size))


def _scores(query: Any, key: Any) -> Any:
    """[batch, query heads, queries, keys]; each key head serves equally many query heads in turn."""
    return _by_heads(query, key, "qd kd qk")


def _mixed(weights: Any, value: Any) -> Any:
    return _by_heads(weights, value, "qk kd qd")


def _by_heads(left: Any, right: Any, dims: str) -> Any:
    """A product head by head; `dims`: those of both and of the result behind batch and heads."""
    batch, heads, *sizes = left.shape
    shared = heads // right.shape[1]
    of_left, of_right, of_result = dims.split()
    if shared == 1:
        return jnp.einsum(f"bh{of_left},bh{of_right}->bh{of_result}", left, right)
    grouped = jnp.reshape(left, (batch, right.shape[1], shared, *sizes))
    found = jnp.einsum(f"bgs{of_left},bg{of_right}->bgs{of_result}", grouped, right)
    return jnp.reshape(found, (batch, heads, *found.shape[3:]))


def _chosen(may: Any, dtype: Any) -> Any:
    """The bias that leaves only what a mask allows."""
    return jnp.where(may, jnp.zeros((), dtype), jnp.array(-jnp.inf, dtype))


def _bias(query: Any, keys: int, mask: Any, offset: Any, causal: bool, window: tuple[int, int], filled: Any) -> Any:
    """What is added to the scores: the mask, and what causality, a window and padding forbid."""
    dtype, queries = query.dtype, query.shape[2]
    bias = jnp.zeros((queries, keys), dtype)
    if mask is not None:
        # A mask may be shorter than the keys are; what it leaves out is forbidden.
        missing = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
        if mask.dtype == jnp.bool_:
            bias = bias + _chosen(jnp.pad(mask, missing), dtype)
        else:
            bias = bias + jnp.pad(mask, missing, constant_values=-jnp.inf)
    places = jnp.arange(queries)[:, None] + jnp.reshape(offset, (-1, 1, 1, 1)) if jnp.ndim(offset) else (
        jnp.arange(queries)[:, None] + offset
    )  # fmt: skip
    distance = places - jnp.arange(keys)
    left, right = window
    for is_asked, may in ((causal, distance >= 0), (left >= 0, distance <= left), (right >= 0, -distance <= right)):
        if is_asked:
            bias = bias + _chosen(may, dtype)
    if filled is not None:
        bias = bias + _chosen(jnp.arange(keys) < jnp.reshape(filled, (-1, 1, 1, 1)), dtype)
    return bias


def _softmax(scores: Any, bias: Any) -> Any:
    """Zero where nothing may be attended to."""
    largest = jnp.max(scores, -1, keepdims=True)
    # Where all is forbidden, the largest is -inf, and -inf less -inf is no number; nor is a weight of 0 / 0 below.
    shifted = jnp.exp(scores - jnp.where(jnp.isneginf(largest), jnp.zeros((), scores.dtype), largest))
    total = jnp.sum(shifted, -1, keepdims=True)
    weights = shifted / jnp.where(total == 0, jnp.ones((), total.dtype), total)
    return jnp.where(jnp.isneginf(jnp.max(bias, -1, keepdims=True)), jnp.zeros((), weights.dtype), weights)


@operator("Attention", 25)
def _attention(
    query: Any, key: Any, value: Any, mask: Any = None, past_key: Any = None, past_value: Any = None,
    filled: Any = None, *, is_causal: int = 0, kv_num_heads: int | None = None, q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0, scale: float | None = None, softcap: float = 0.0,
    softmax_precision: int | None = None, left_window_size: int = -1, right_window_size: int = -1,
) -> Any:  # fmt: skip
    is_flat = query.ndim == 3
    if is_flat:
        if q_num_heads is None or kv_num_heads is None:
            raise LoadError("inputs of rank 3 need q_num_heads and kv_num_heads")
        query, key, value = (
            _split_heads(x, n) for x, n in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
        )
    if past_key is not None:
        key, value = jnp.concatenate([past_key, key], 2), jnp.concatenate([past_value, value], 2)
    # The frontier of what is seen is aligned with the end of the keys that are there.
    offset: Any = 0
    if past_key is not None:
        offset = past_key.shape[2]
    elif filled is not None:
        offset = filled - query.shape[2]
    # ONNX scales each side by the root: in 16 bits a product of both may overflow before it is scaled.
    root = jnp.array(math.sqrt(scale if scale is not None else 1 / math.sqrt(query.shape[3])), query.dtype)
    products = _scores(query * root, key * root)
    capped = softcap * jnp.tanh(products / softcap) if softcap > 0 else products
    bias = _bias(
        query, key.shape[2], mask, offset, bool(is_causal), (left_window_size, right_window_size), filled
    ).astype(query.dtype)  # fmt: skip
    biased = capped + bias
    precise = biased if softmax_precision is None else biased.astype(precision_of(softmax_precision))
    weights = _softmax(precise, bias)
    shown = (products, capped, biased, weights)[qk_matmul_output_mode].astype(query.dtype)
    out = _mixed(weights.astype(query.dtype), value)
    return _merged_heads(out) if is_flat else out, key, value, shown


@operator("FlexAttention", 1, domain="ai.onnx.preview")
def _flex_attention(
    query: Any, key: Any, value: Any,
    *, scale: float | None = None, softmax_precision: int | None = None,
    score_mod: Callable[..., Any] | None = None, prob_mod: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    usual = jnp.float64 if query.dtype == jnp.float64 else jnp.float32
    precision = usual if softmax_precision is None else precision_of(softmax_precision)
    factor = scale if scale is not None else 1 / math.sqrt(query.shape[3])
    scores = _scores(query.astype(precision), key.astype(precision)) * jnp.array(factor, precision)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = jax.nn.softmax(scores, -1)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return _mixed(weights.astype(precision), value.astype(precision)).astype(query.dtype)


@operator("RotaryEmbedding", 23)
def _rotary_embedding(
    x: Any, cos: Any, sin: Any, positions: Any = None,
    *, interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Any:  # fmt: skip
    heads = x if x.ndim == 4 else _split_heads(x, num_heads)
    size = rotary_embedding_dim or heads.shape[3]
    if positions is not None:
        cos, sin = jnp.take(cos, positions, 0), jnp.take(sin, positions, 0)
    cos, sin = cos[:, None], sin[:, None]
    turned, rest = heads[..., :size], heads[..., size:]
    first, second = (turned[..., 0::2], turned[..., 1::2]) if interleaved else jnp.split(turned, 2, -1)
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    if interleaved:
        turned = jnp.reshape(jnp.stack([real, imaginary], -1), turned.shape)
    else:
        turned = jnp.concatenate([real, imaginary], -1)
    out = jnp.concatenate([turned, rest], -1).astype(x.dtype)
    return out if x.ndim == 4 else _merged_heads(out)


@operator("LinearAttention", 27)
def _linear_attention(
    query: Any, key: Any, value: Any, past_state: Any = None, decay: Any = None, beta: Any = None,
    *, chunk_size: int = 64, kv_num_heads: int, q_num_heads: int, scale: float = 0.0, update_rule: str = "gated_delta",
) -> Any:  # fmt: skip
    del chunk_size  # how to compute, not what
    decays, corrects = {
        "linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)
    }[update_rule]  # fmt: skip
    if decays != (decay is not None) or corrects != (beta is not None):
        raise LoadError(f"rule {update_rule!r} with decay {decay is not None}, beta {beta is not None}")
    q, k, v = (
        _split_heads(x, n).astype(jnp.float32)
        for x, n in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    state = jnp.zeros((*k.shape[:2], k.shape[3], v.shape[3]), jnp.float32) if past_state is None else past_state
    factor = scale or 1 / math.sqrt(k.shape[3])
    shared = q_num_heads // kv_num_heads
    more = {}
    if decay is not None:
        more["decay"] = _split_heads(decay, kv_num_heads).astype(jnp.float32)
    if beta is not None:
        more["beta"] = _split_heads(beta, beta.shape[2]).astype(jnp.float32)

    def step(state: Any, now: dict[str, Any]) -> tuple[Any, Any]:
        written = now["v"]
        if "decay" in now:
            state = state * jnp.exp(now["decay"])[..., None]
        if "beta" in now:
            written = now["beta"] * (written - jnp.einsum("bhdm,bhd->bhm", state, now["k"]))
        state = state + now["k"][..., :, None] * written[..., None, :]
        grouped = jnp.reshape(now["q"], (now["q"].shape[0], kv_num_heads, shared, -1))
        read = jnp.einsum("bgsd,bgdm->bgsm", grouped, state)
        return state, factor * jnp.reshape(read, (read.shape[0], q_num_heads, -1))

    by_time = {name: jnp.moveaxis(x, 2, 0) for name, x in ({"q": q, "k": k, "v": v} | more).items()}
    state, out = lax.scan(step, state.astype(jnp.float32), by_time)
    present = state.astype(query.dtype if past_state is None else past_state.dtype)
    return _merged_heads(jnp.moveaxis(out, 0, 2)).astype(query.dtype), present


@operator("CausalConvWithState", 27)
def _causal_convolution(
    x: Any, weight: Any, bias: Any = None, past_state: Any = None, *, activation: str = "none"
) -> Any:
    batch, channels, _ = x.shape
    reach = weight.shape[2] - 1
    before = jnp.zeros((batch, channels, reach), x.dtype) if past_state is None else past_state
    padded = jnp.concatenate([before, x], 2)
    out = lax.conv_general_dilated(padded, weight, (1,), [(0, 0)], feature_group_count=channels)
    if bias is not None:
        out = out + bias[:, None]
    if activation in ("silu", "swish"):
        wide = out.astype(jnp.float32)
        out = (wide * jax.nn.sigmoid(wide)).astype(x.dtype)
    elif activation != "none":
        raise LoadError(f"activation {activation!r} is not handled")
    return out, padded[:, :, padded.shape[2] - reach :]


@operator("SwiGLU", 28)
def _swiglu(a: Any, b: Any, *, alpha: float = 1.0) -> Any:
    return a * jax.nn.sigmoid(alpha * a) * b


@operator("TensorScatter", 24)
def _tensor_scatter(cache: Any, update: Any, starts: Any = None, *, mode: str = "linear", axis: int = -2) -> Any:
    axis, length = axis % cache.ndim, cache.shape[axis]
    first = jnp.zeros((cache.shape[0],), jnp.int64) if starts is None else starts
    moved, written = jnp.moveaxis(cache, axis, 1), jnp.moveaxis(update, axis, 1)
    places = first[:, None] + jnp.arange(written.shape[1])
    places = places % length if mode == "circular" else places
    rows = jnp.arange(cache.shape[0])[:, None]
    return jnp.moveaxis(moved.at[rows, places].set(written), 1, axis)
