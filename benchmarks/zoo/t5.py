"""T5: an encoder and a decoder with relative position biases, RMS norms and gated MLPs; heads, hidden dims are split.

The position bias is a small table, looked up by a bucket of the distance; its gradient is a scatter.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Say, Tree

HEADS, BUCKETS = 8, 16


def attention_weights(draw: Draw, width: int) -> Tree:
    head = width // HEADS
    return {
        "norm": np.ones(width, np.float32),
        "query": draw.weight(width, HEADS, head),
        "key": draw.weight(width, HEADS, head),
        "value": draw.weight(width, HEADS, head),
        "out": draw.weight(HEADS, head, width, fan_in=width),
    }


def mlp_weights(draw: Draw, width: int) -> Tree:
    return {
        "norm": np.ones(width, np.float32),
        "gate": draw.weight(width, 2 * width),
        "up": draw.weight(width, 2 * width),
        "down": draw.weight(2 * width, width),
    }


def init(scale: int, depth: int) -> Tree:
    """`depth` layers that encode, and as many that decode."""
    draw, width = Draw(), 64 * scale
    encoder = [(attention_weights(draw, width), mlp_weights(draw, width)) for _ in range(depth)]
    decoder = [
        (attention_weights(draw, width), attention_weights(draw, width), mlp_weights(draw, width)) for _ in range(depth)
    ]
    layers: dict[str, Any] = {"encoder": encoder, "decoder": decoder}
    return layers | {
        "embedding": draw.weight(128 * scale, width, fan_in=width),
        "encoder_bias": draw.normal(BUCKETS, HEADS),
        "decoder_bias": draw.normal(BUCKETS, HEADS),
    }


def norm(scale: jax.Array, x: jax.Array) -> jax.Array:
    """T5's: no mean, no bias."""
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * scale


def position_bias(table: jax.Array, size: int, *, is_causal: bool) -> jax.Array:
    """[heads, queries, keys]: by distance, exact for near keys and logarithmic for far ones."""
    distance = jnp.arange(size)[None, :] - jnp.arange(size)[:, None]
    far = jnp.log2(jnp.maximum(jnp.abs(distance), 1)).astype(jnp.int32) + BUCKETS // 4
    bucket = jnp.minimum(jnp.where(jnp.abs(distance) < BUCKETS // 4, jnp.abs(distance), far), BUCKETS // 2 - 1)
    bucket = jnp.where(distance > 0, bucket + BUCKETS // 2, bucket)
    bias = jnp.moveaxis(table[bucket], -1, 0)
    return jnp.where(distance <= 0, bias, -1e9) if is_causal else bias


def attention(weights: Tree, x: jax.Array, memory: jax.Array, bias: jax.Array | None, say: Say) -> jax.Array:
    """`x` asks, `memory` answers."""
    query = jnp.einsum("btd,dhk->bthk", x, say(weights["query"], None, "model"))
    key = jnp.einsum("btd,dhk->bthk", memory, say(weights["key"], None, "model"))
    value = jnp.einsum("btd,dhk->bthk", memory, say(weights["value"], None, "model"))
    scores = jnp.einsum("bqhk,bthk->bhqt", query, key)
    scores = scores if bias is None else scores + bias
    mixed = jnp.einsum("bhqt,bthk->bqhk", jax.nn.softmax(scores, axis=-1), value)
    return jnp.einsum("bqhk,hkd->bqd", mixed, say(weights["out"], "model"))


def mlp(weights: Tree, x: jax.Array, say: Say) -> jax.Array:
    """Gated gelu."""
    gate = jax.nn.gelu(x @ say(weights["gate"], None, "model"))
    return (gate * (x @ say(weights["up"], None, "model"))) @ say(weights["down"], "model")


def encode(params: Tree, x: jax.Array, say: Say) -> jax.Array:
    bias = position_bias(params["encoder_bias"], x.shape[1], is_causal=False)
    for own, dense in params["encoder"]:
        y = norm(own["norm"], x)
        x = x + attention(own, y, y, bias, say)
        x = x + mlp(dense, norm(dense["norm"], x), say)
    return x


def decode(params: Tree, x: jax.Array, memory: jax.Array, say: Say) -> jax.Array:
    bias = position_bias(params["decoder_bias"], x.shape[1], is_causal=True)
    for own, cross, dense in params["decoder"]:
        y = norm(own["norm"], x)
        x = x + attention(own, y, y, bias, say)
        x = x + attention(cross, norm(cross["norm"], x), memory, None, say)
        x = x + mlp(dense, norm(dense["norm"], x), say)
    return x


def build(mesh: Mesh, scale: int, depth: int = 2) -> Program:
    say, draw = parts.annotator(mesh), Draw(1)

    def loss(params: Tree, source: jax.Array, target: jax.Array) -> jax.Array:
        embedding = say(params["embedding"], "model")
        memory = encode(params, embedding[say(source, "data")], say)
        x = decode(params, embedding[say(target, "data")[:, :-1]], memory, say)
        return parts.cross_entropy(x @ embedding.T * x.shape[-1] ** -0.5, target[:, 1:])

    source, target = (draw.integers(128 * scale, 16, size) for size in (32 * scale, 16 * scale + 1))
    return parts.training(loss, init(scale, depth), source, target)


MODELS = (Model(name="T5", axes=DATA_BY_MODEL, build=build),)
