"""One step of beam-search decoding with a key-value cache: attention over the cache, top-k over all beams, reordering.

Batch is split over `data`, heads (and the vocabulary) over `model`; nothing is trained.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Say, Tree

HEADS, BEAMS, BATCH, LAYERS = 8, 4, 4, 2


def init(scale: int) -> Tree:
    draw, width = Draw(), 64 * scale
    head = width // HEADS
    return {
        "embedding": draw.weight(128 * scale, width, fan_in=width),
        "layers": [
            {
                "norm": parts.norm_weights(width),
                "qkv": draw.weight(width, 3, HEADS, head),
                "out": draw.weight(HEADS, head, width, fan_in=width),
                "up": draw.weight(width, 4 * width),
                "down": draw.weight(4 * width, width),
            }
            for _ in range(LAYERS)
        ],
    }


def state(scale: int) -> dict[str, Any]:
    """Halfway through a sentence: last tokens, scores, the cache, and how far it is filled."""
    draw, time = Draw(1), 32 * scale
    cache = LAYERS, 2, BATCH, BEAMS, time, HEADS, 8 * scale
    return {
        "tokens": draw.integers(128 * scale, BATCH, BEAMS),
        "scores": draw.normal(BATCH, BEAMS),
        "cache": draw.normal(*cache),
        "written": np.zeros((BATCH, BEAMS, time), np.int32),
        "position": np.int32(time // 2),
    }


def attend(layer: Tree, x: jax.Array, cache: jax.Array, position: jax.Array, say: Say) -> tuple[jax.Array, jax.Array]:
    """The new token's attention, and the cache with its key and value written."""
    qkv = say(layer["qkv"], None, None, "model")
    query, key, value = jnp.moveaxis(jnp.einsum("bnd,dchk->bnchk", parts.layer_norm(layer["norm"], x), qkv), 2, 0)
    cache = jax.lax.dynamic_update_slice_in_dim(cache, jnp.stack([key, value])[:, :, :, None], position, 3)
    scores = jnp.einsum("bnhk,bnthk->bnht", query, cache[0]) * query.shape[-1] ** -0.5
    seen = jnp.arange(cache.shape[3]) <= position
    mixed = jnp.einsum("bnht,bnthk->bnhk", jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1), cache[1])
    return jnp.einsum("bnhk,hkd->bnd", mixed, say(layer["out"], "model")), cache


def build(mesh: Mesh, scale: int) -> Program:
    say = parts.annotator(mesh)

    def step(params: Tree, now: Tree) -> Tree:
        cache = say(now["cache"], None, None, "data", None, None, "model")
        embedding = say(params["embedding"], "model")
        x = embedding[say(now["tokens"], "data")]
        written: list[jax.Array] = []
        for layer, kept in zip(params["layers"], cache, strict=True):
            mixed, kept = attend(layer, x, kept, now["position"], say)
            written.append(kept)
            x = x + mixed
            x = x + jax.nn.gelu(x @ say(layer["up"], None, "model")) @ say(layer["down"], "model")
        return chosen(now, jax.nn.log_softmax(x @ embedding.T), jnp.stack(written))

    return Program(function=step, arguments=(init(scale), state(scale)))


def chosen(now: Tree, scores: jax.Array, cache: jax.Array) -> Tree:
    """The best beams of each sentence, with the histories of those that they continue."""
    words = scores.shape[-1]
    total = (now["scores"][..., None] + scores).reshape(BATCH, BEAMS * words)
    best, index = jax.lax.top_k(total, BEAMS)
    parent, token = index // words, index % words
    written = jnp.take_along_axis(now["written"], parent[..., None], axis=1)
    written = jax.lax.dynamic_update_slice_in_dim(written, token[..., None], now["position"], 2)
    return {
        "tokens": token,
        "scores": best,
        "cache": jnp.take_along_axis(cache, parent[None, None, :, :, None, None, None], axis=3),
        "written": written,
        "position": now["position"] + 1,
    }


MODELS = (Model(name="beam search", axes=DATA_BY_MODEL, build=build, is_long=False),)
