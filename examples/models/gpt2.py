"""A GPT-2-style language model in plain JAX, its loss and its training step.

Knows JAX only: the six `with_sharding_constraint` lines are all that is said about devices, and they are the lines a
user of `jax.jit` would write.  On one device they stand on a 1 x 1 mesh and mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from examples.models.adam import AdamState, adam_step, adam_zeros

Params = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Sizes of the model and of its batch."""

    layers: int = 4
    width: int = 256
    heads: int = 8
    vocabulary: int = 1024
    context: int = 64
    batch: int = 16

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def init(config: Config, seed: int = 0) -> Params:
    """Parameters drawn as GPT-2 draws them: normal, 0.02, residual projections scaled down by depth."""
    draw = _normal(seed)
    width, depth = config.width, (2 * config.layers) ** -0.5

    def layer() -> Params:
        return {
            "attention_norm": _norm(width),
            "qkv": draw(width, 3, config.heads, config.head_width),
            "attention_out": draw(config.heads, config.head_width, width) * depth,
            "mlp_norm": _norm(width),
            "up": draw(width, 4 * width),
            "up_bias": jnp.zeros(4 * width),
            "down": draw(4 * width, width) * depth,
            "down_bias": jnp.zeros(width),
        }

    return {
        "embedding": draw(config.vocabulary, width),
        "positions": draw(config.context, width),
        "layers": [layer() for _ in range(config.layers)],
        "final_norm": _norm(width),
    }


def _normal(seed: int) -> Any:
    keys = _keys(seed)
    return lambda *shape: 0.02 * jax.random.normal(next(keys), shape)


def _keys(seed: int) -> Iterator[jax.Array]:
    key = jax.random.key(seed)
    while True:
        key, one = jax.random.split(key)
        yield one


def _norm(width: int) -> Params:
    return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}


def layer_norm(norm: Params, x: jax.Array) -> jax.Array:
    """Zero mean, unit variance over the last dim, then scale and bias."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * norm["scale"] + norm["bias"]


def attention(layer: Params, x: jax.Array, mesh: Mesh) -> jax.Array:
    """Causal multi-head attention; heads are split over the model axis."""
    qkv_weight = with_sharding_constraint(layer["qkv"], NamedSharding(mesh, P(None, None, "model")))
    out_weight = with_sharding_constraint(layer["attention_out"], NamedSharding(mesh, P("model")))
    query, key, value = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", x, qkv_weight), 2, 0)
    scores = jnp.einsum("bqhk,bthk->bhqt", query, key) * query.shape[-1] ** -0.5
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhqt,bthk->bqhk", weights, value)
    return jnp.einsum("bqhk,hkd->bqd", mixed, out_weight)


def mlp(layer: Params, x: jax.Array, mesh: Mesh) -> jax.Array:
    """Two dense layers with gelu between; the hidden dim is split over the model axis."""
    up = with_sharding_constraint(layer["up"], NamedSharding(mesh, P(None, "model")))
    down = with_sharding_constraint(layer["down"], NamedSharding(mesh, P("model", None)))
    hidden = jax.nn.gelu(x @ up + layer["up_bias"])
    return hidden @ down + layer["down_bias"]


def logits(params: Params, tokens: jax.Array, mesh: Mesh) -> jax.Array:
    """[batch, time] token ids -> [batch, time, vocabulary]; the head is the embedding, transposed."""
    tokens = with_sharding_constraint(tokens, NamedSharding(mesh, P("data", None)))
    embedding = with_sharding_constraint(params["embedding"], NamedSharding(mesh, P("model", None)))
    x = embedding[tokens] + params["positions"]
    for layer in params["layers"]:
        x = x + attention(layer, layer_norm(layer["attention_norm"], x), mesh)
        x = x + mlp(layer, layer_norm(layer["mlp_norm"], x), mesh)
    return layer_norm(params["final_norm"], x) @ embedding.T


def loss(params: Params, tokens: jax.Array, mesh: Mesh) -> jax.Array:
    """Mean cross entropy of the next token; `tokens` is [batch, context + 1]."""
    scores = jax.nn.log_softmax(logits(params, tokens[:, :-1], mesh))
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1).mean()


def init_optimizer(params: Params) -> AdamState:
    """Adam's state before the first step."""
    return adam_zeros(params)


def training_step(mesh: Mesh) -> Any:
    """The function to compile: (params, optimizer, tokens) -> (params, optimizer, loss)."""

    def step(params: Params, optimizer: AdamState, tokens: jax.Array) -> tuple[Params, AdamState, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, tokens, mesh)
        params, optimizer = adam_step(params, gradients, optimizer, learning_rate=1e-3)
        return params, optimizer, value

    return step


def batches(config: Config, seed: int = 0) -> Iterator[np.ndarray]:
    """Endless [batch, context + 1] token ids of a toy language: each word has four likely successors."""
    random = np.random.default_rng(seed)
    successors = random.integers(0, config.vocabulary, (config.vocabulary, 4))
    while True:
        tokens = np.empty((config.batch, config.context + 1), np.int32)
        tokens[:, 0] = random.integers(0, config.vocabulary, config.batch)
        for t in range(config.context):
            tokens[:, t + 1] = successors[tokens[:, t], random.integers(0, 4, config.batch)]
        yield tokens


def abstract_arguments(config: Config) -> tuple[Params, AdamState, jax.ShapeDtypeStruct]:
    """The step's arguments as shapes, so that large models can be compiled without being made."""
    params = jax.eval_shape(lambda: init(config))
    tokens = jax.ShapeDtypeStruct((config.batch, config.context + 1), jnp.int32)
    return params, jax.eval_shape(adam_zeros, params), tokens
