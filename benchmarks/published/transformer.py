"""Decoders as people write them: GPT, MPT, Llama 3, Mixtral and DeepSeek; layers in a scan or listed, each under
`jax.checkpoint`.

Weights, moments and the update are f32, the layers compute in bf16; heads are a dim of their own, as in Flax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.published.experts import Experts, feed_forward

Tree = Any


@dataclass(frozen=True, kw_only=True)
class Config:
    """What tells one published model from another."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    hidden: int
    """Of the feed-forward layer."""
    kv_heads: int = 0
    """0: as many as heads."""
    head_dim: int = 0
    """0: width over heads."""
    gated: bool = False
    """Silu times a gate (Llama), or gelu (GPT)."""
    positions: str = "learned"
    """`learned`, `rotary` or `alibi`."""
    tied: bool = True
    """Is the embedding the output's weight, too?"""
    scanned: bool = True
    remat: str = "full"
    """`none`, `full`, or the name of one of `jax.checkpoint_policies`."""
    compute: Any = jnp.bfloat16
    experts: Experts | None = None

    @property
    def dense_layers(self) -> int:
        """The first ones, that lie apart from those of experts."""
        return self.experts.dense_layers if self.experts else 0

    @property
    def kv(self) -> int:
        return self.kv_heads or self.heads

    @property
    def dim(self) -> int:
        return self.head_dim or self.width // self.heads

    def listed(self) -> Config:
        """The same with its layers in a list."""
        return replace(self, scanned=False)


GPT_1_7B = Config(layers=24, width=2304, heads=24, vocabulary=51200, length=2048, hidden=9216)
MPT_7B = Config(layers=32, width=4096, heads=32, vocabulary=50368, length=2048, hidden=16384, positions="alibi")
LLAMA_8B = Config(
    layers=32,
    width=4096,
    heads=32,
    kv_heads=8,
    vocabulary=128256,
    length=2048,
    hidden=14336,
    gated=True,
    positions="rotary",
    tied=False,
)
MIXTRAL_8X7B = replace(LLAMA_8B, vocabulary=32000, experts=Experts(count=8, chosen=2, hidden=14336))
DEEPSEEK_16B = replace(
    LLAMA_8B,
    layers=28,
    width=2048,
    heads=16,
    kv_heads=16,
    vocabulary=102400,
    hidden=10944,
    experts=Experts(count=64, chosen=6, hidden=1408, shared=2, dense_layers=1),
)


def parameters(config: Config, dtype: Any = jnp.float32) -> Tree:
    """Shapes of all weights; of scanned layers each is a stack."""

    def array(*dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, dtype)

    width, dim = config.width, config.dim
    attention = {
        "attention_norm": array(width),
        "q": array(width, config.heads, dim),
        "k": array(width, config.kv, dim),
        "v": array(width, config.kv, dim),
        "o": array(config.heads, dim, width),
        "mlp_norm": array(width),
    }
    dense = {**attention, "up": array(width, config.hidden), "down": array(config.hidden, width)}
    if config.gated:
        dense["gate"] = array(width, config.hidden)
    sparse = config.experts.shapes(width) if config.experts else {}
    layer = attention | {name: array(*dims) for name, dims in sparse.items()} if sparse else dense
    whole: dict[str, Any] = {"embedding": array(config.vocabulary, width), "norm": array(width)}
    if config.positions == "learned":
        whole["positions"] = array(config.length, width)
    if not config.tied:
        whole["output"] = array(width, config.vocabulary)
    if config.dense_layers:
        whole["first"] = [dense] * config.dense_layers
    rest = config.layers - config.dense_layers
    stacked = {name: array(rest, *leaf.shape) for name, leaf in layer.items()}
    return {**whole, "layers": stacked if config.scanned else [layer] * rest}


def loss(config: Config, weights: Tree, tokens: jax.Array) -> jax.Array:
    """Mean cross-entropy of each token's successor."""
    return cross_entropy(logits_of(config, weights, tokens), tokens)


def logits_of(config: Config, weights: Tree, tokens: jax.Array) -> jax.Array:
    """Of each token's successor."""
    x = weights["embedding"].astype(config.compute)[tokens]
    if config.positions == "learned":
        x = x + weights["positions"].astype(config.compute)
    layer = _checkpointed(config, partial(_layer, config))
    for one in weights.get("first", ()):
        x = layer(one, x)
    if config.scanned:
        x, _ = jax.lax.scan(lambda x, one: (layer(one, x), None), x, weights["layers"])
    else:
        for one in weights["layers"]:
            x = layer(one, x)
    x = _norm(x, weights["norm"])
    output = weights["embedding"].T if config.tied else weights["output"]
    return x @ output.astype(config.compute)


def cross_entropy(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Mean over all tokens that have a successor."""
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits[:, :-1], axis=-1) - picked)


def _checkpointed(config: Config, layer: Callable[..., Any]) -> Callable[..., Any]:
    if config.remat == "none":
        return layer
    policy = None if config.remat == "full" else getattr(jax.checkpoint_policies, config.remat)
    # in a scan no pass is merged with the other, so the barriers are left out, as JAX and MaxText advise
    return jax.checkpoint(layer, policy=policy, prevent_cse=not config.scanned)


def _layer(config: Config, weights: Tree, x: jax.Array) -> jax.Array:
    x = x + _attention(config, weights, _norm(x, weights["attention_norm"]))
    return x + _feed_forward(config, weights, _norm(x, weights["mlp_norm"]))


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype)


def _attention(config: Config, weights: Tree, x: jax.Array) -> jax.Array:
    q, k, v = (jnp.einsum("bsw,whd->bshd", x, weights[name].astype(x.dtype)) for name in "qkv")
    if config.positions == "rotary":
        q, k = _rotated(q), _rotated(k)
    bias = _alibi(config, x.dtype) if config.positions == "alibi" else None
    mixed = jax.nn.dot_product_attention(q, k, v, bias=bias, is_causal=True)
    return jnp.einsum("bshd,hdw->bsw", mixed, weights["o"].astype(x.dtype))


def _rotated(x: jax.Array) -> jax.Array:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 500000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1).astype(x.dtype)


def _alibi(config: Config, dtype: Any) -> jax.Array:
    slopes = 2.0 ** (-8.0 * (jnp.arange(config.heads) + 1) / config.heads)
    places = jnp.arange(config.length)
    return (slopes[:, None, None] * (places[None, None, :] - places[None, :, None]))[None].astype(dtype)


def _feed_forward(config: Config, weights: Tree, x: jax.Array) -> jax.Array:
    if config.experts and "router" in weights:
        return feed_forward(config.experts, weights, x)
    up, down = (weights[name].astype(x.dtype) for name in ("up", "down"))
    hidden = jax.nn.silu(x @ weights["gate"].astype(x.dtype)) * (x @ up) if config.gated else jax.nn.gelu(x @ up)
    return hidden @ down


def train_step(config: Config, weights: Tree, moments: tuple[Tree, Tree], tokens: jax.Array) -> tuple[Tree, Tree, Any]:
    """A step of `adam`: (weights, moments, loss)."""
    value, gradients = jax.value_and_grad(partial(loss, config))(weights, tokens)
    return *adam(weights, moments, gradients), value


def adam(weights: Tree, moments: tuple[Tree, Tree], gradients: Tree) -> tuple[Tree, tuple[Tree, Tree]]:
    """Kingma and Ba 2015, its bias corrections left to the learning rate: (weights, moments)."""
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    second = jax.tree.map(lambda m, g: 0.95 * m + 0.05 * g * g, moments[1], gradients)
    weights = jax.tree.map(lambda w, m, v: w - 3e-4 * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
    return weights, (first, second)


def arguments(config: Config, batch: int) -> tuple[Tree, tuple[Tree, Tree], jax.ShapeDtypeStruct]:
    """Of `train_step` with so many sequences."""
    weights = parameters(config)
    return weights, (weights, weights), jax.ShapeDtypeStruct((batch, config.length), jnp.int32)
