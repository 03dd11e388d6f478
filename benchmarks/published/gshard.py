"""Decoders of which every other layer has experts (GShard, Lepikhin et al. 2020), as people write them in JAX: pairs of
layers in a scan, each layer under `jax.checkpoint`; half precision with f32 masters; Adafactor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.published.transformer import cross_entropy

Tree = Any
HALF = jnp.float16


@dataclass(frozen=True, kw_only=True)
class MoeConfig:
    """What tells one of them from another."""

    layers: int
    width: int
    experts: int
    """Of every other layer; each token goes to two."""
    heads: int = 16
    vocabulary: int = 32000
    length: int = 1024
    group: int = 2048
    """Tokens among which the slots of each expert are dealt: sequences that follow each other."""

    @property
    def hidden(self) -> int:
        """Of feed-forward layers, and of each expert."""
        return 8 * self.width

    @property
    def slots(self) -> int:
        """Of an expert in a group: its fair share."""
        return 2 * self.group // self.experts


def train_step(config: MoeConfig, weights: Tree, moments: Tree, tokens: jax.Array) -> tuple[Tree, Tree, jax.Array]:
    """A step: (weights, moments, loss)."""
    value, gradients = jax.value_and_grad(partial(_loss, config))(weights, tokens)
    return *_adafactor(weights, moments, gradients), value


def arguments(config: MoeConfig, batch: int) -> tuple[Tree, Tree, jax.ShapeDtypeStruct]:
    """Of `train_step` with so many sequences; of moments rows, columns and masters."""
    weights = _parameters(config)
    is_stack = {key: jax.tree.map(lambda _, key=key: key == "layers", leaf) for key, leaf in weights.items()}
    rows = jax.tree.map(lambda w, stacked: _wide(w.shape[:-1] if w.ndim - stacked > 1 else w.shape), weights, is_stack)
    columns = jax.tree.map(
        lambda w, stacked: _wide((*w.shape[:-2], w.shape[-1]) if w.ndim - stacked > 1 else w.shape), weights, is_stack
    )
    masters = jax.tree.map(lambda w: _wide(w.shape), weights)
    return weights, (rows, columns, masters), jax.ShapeDtypeStruct((batch, config.length), jnp.int32)


def _wide(dims: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def _parameters(config: MoeConfig) -> Tree:
    width, hidden, dim = config.width, config.hidden, config.width // config.heads
    heads = dict.fromkeys("qkv", (width, config.heads, dim))
    attention = {"attention_norm": (width,), **heads, "o": (config.heads, dim, width), "mlp_norm": (width,)}
    experts = {"up": (config.experts, width, hidden), "down": (config.experts, hidden, width)}
    pair = {
        "sparse": {**attention, "router": (width, config.experts), **experts},
        "dense": {**attention, "up": (width, hidden), "down": (hidden, width)},
    }
    whole = {"embedding": (config.vocabulary, width), "positions": (config.length, width), "norm": (width,)}
    stacks = {kind: {name: (config.layers // 2, *dims) for name, dims in one.items()} for kind, one in pair.items()}
    shapes = {**whole, "output": (width, config.vocabulary), "layers": stacks}
    return jax.tree_util.tree_map_with_path(_stored, shapes, is_leaf=lambda it: isinstance(it, tuple))


def _stored(path: Any, dims: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    """Norms and routers stay in f32, in which they compute."""
    is_wide = path[-1].key.endswith(("norm", "router"))
    return jax.ShapeDtypeStruct(dims, jnp.float32 if is_wide else HALF)


def _loss(config: MoeConfig, weights: Tree, tokens: jax.Array) -> jax.Array:
    x = weights["embedding"][tokens] + weights["positions"]
    sparse, dense = (jax.checkpoint(partial(_layer, config, each), prevent_cse=False) for each in (experts, _mlp))
    x, _ = jax.lax.scan(lambda x, pair: (dense(pair["dense"], sparse(pair["sparse"], x)), None), x, weights["layers"])
    return cross_entropy(_norm(x, weights["norm"]) @ weights["output"], tokens)


def _layer(config: MoeConfig, feed_forward: Any, weights: Tree, x: jax.Array) -> jax.Array:
    x = x + _attention(weights, _norm(x, weights["attention_norm"]))
    return x + feed_forward(config, weights, _norm(x, weights["mlp_norm"]))


@jax.named_scope("norm")
def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype)


def _attention(weights: Tree, x: jax.Array) -> jax.Array:
    q, k, v = (jnp.einsum("bsw,whd->bshd", x, weights[name]) for name in "qkv")
    scores = jnp.einsum("bshd,bthd->bhst", q, k)
    mixed = jnp.einsum("bhst,bthd->bshd", _masked_softmax(scores), v)
    return jnp.einsum("bshd,hdw->bsw", mixed, weights["o"])


@jax.named_scope("masked_softmax")
def _masked_softmax(scores: jax.Array) -> jax.Array:
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(seen, scores.astype(jnp.float32), -1e4), axis=-1).astype(scores.dtype)


def _mlp(config: MoeConfig, weights: Tree, x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ weights["up"]) @ weights["down"]


def experts(config: MoeConfig, weights: Tree, x: jax.Array) -> jax.Array:
    """Dense dispatch: one-hot products into slots of each expert, the first choices of all tokens first."""
    tokens = x.reshape(-1, config.group, config.width)
    shares, chosen = jax.lax.top_k(jax.nn.softmax(tokens.astype(jnp.float32) @ weights["router"]), 2)
    picks = jax.nn.one_hot(chosen, config.experts, axis=-1, dtype=jnp.int32)
    earlier = jnp.cumsum(picks[..., 0, :], axis=1), jnp.cumsum(picks[..., 1, :], axis=1)
    places = jnp.stack([earlier[0], earlier[1] + earlier[0][:, -1:]], axis=2) * picks - 1  # -1: a row of zeros
    combine = jnp.einsum("gsk,gskec->gsec", shares.astype(x.dtype), jax.nn.one_hot(places, config.slots, dtype=x.dtype))
    rows = jnp.einsum("gsec,gsm->egcm", (combine > 0).astype(x.dtype), tokens)
    made = jnp.einsum("egch,ehm->egcm", jax.nn.relu(jnp.einsum("egcm,emh->egch", rows, weights["up"])), weights["down"])
    return jnp.einsum("gsec,egcm->gsm", combine, made).reshape(x.shape)


def _adafactor(weights: Tree, moments: Tree, gradients: Tree) -> tuple[Tree, Tree]:
    """Shazeer and Stern 2018, without momentum: (weights, moments)."""
    found = jax.tree.map(_updated, gradients, *moments)
    rows, columns, masters = (jax.tree.map(lambda _, one, n=n: one[n], gradients, found) for n in range(3))
    return jax.tree.map(lambda w, new: new.astype(w.dtype), weights, masters), (rows, columns, masters)


@jax.named_scope("adafactor")
def _updated(gradient: jax.Array, row: jax.Array, column: jax.Array, master: jax.Array) -> tuple[jax.Array, ...]:
    """Of a matrix the means of rows and of columns stand for all squares."""
    wide = gradient.astype(jnp.float32)
    squares = wide * wide + 1e-30
    if row.shape == gradient.shape:
        row = column = 0.9 * row + 0.1 * squares
        return row, column, master - 1e-2 * wide * jax.lax.rsqrt(row)
    row, column = 0.9 * row + 0.1 * jnp.mean(squares, -1), 0.9 * column + 0.1 * jnp.mean(squares, -2)
    scale = jax.lax.rsqrt(row / jnp.mean(row, -1, keepdims=True))[..., None] * jax.lax.rsqrt(column)[..., None, :]
    return row, column, master - 1e-2 * wide * scale
