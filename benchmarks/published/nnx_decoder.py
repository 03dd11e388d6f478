"""A decoder of Flax NNX as people write it: modules, `nnx.split` and `nnx.merge`, layers in `nnx.scan` or a list."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from flax import nnx

from benchmarks.published.transformer import Config, adam, cross_entropy


class Layer(nnx.Module):
    """Attention and a gelu, each behind a norm; weights f32, products in the type of the config."""

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        width = config.width
        kinds: dict[str, Any] = {"dtype": config.compute, "rngs": rngs}
        self.attention_norm = nnx.RMSNorm(width, **kinds)
        self.attention = nnx.MultiHeadAttention(config.heads, width, decode=False, use_bias=False, **kinds)
        self.mlp_norm = nnx.RMSNorm(width, **kinds)
        self.up = nnx.Linear(width, config.hidden, use_bias=False, **kinds)
        self.down = nnx.Linear(config.hidden, width, use_bias=False, **kinds)

    def __call__(self, x: jax.Array) -> jax.Array:
        mask = nnx.make_causal_mask(x[..., 0])
        x = x + self.attention(self.attention_norm(x), mask=mask)
        return x + self.down(jax.nn.gelu(self.up(self.mlp_norm(x))))


class Decoder(nnx.Module):
    """Tokens to logits."""

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        self.config = config
        self.embedding = nnx.Embed(config.vocabulary, config.width, dtype=config.compute, rngs=rngs)
        self.positions = nnx.Param(0.02 * jax.random.normal(rngs.params(), (config.length, config.width)))
        self.layers: Any
        if config.scanned:
            make = nnx.vmap(lambda rngs: Layer(config, rngs), in_axes=0, out_axes=0)
            self.layers = make(rngs.split(config.layers))
        else:
            self.layers = nnx.List([Layer(config, rngs) for _ in range(config.layers)])
        self.norm = nnx.RMSNorm(config.width, dtype=config.compute, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.embedding(tokens) + self.positions[...].astype(self.config.compute)
        apply = nnx.remat(lambda layer, x: layer(x))
        if self.config.scanned:
            x = nnx.scan(lambda x, layer: apply(layer, x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)
        else:
            for layer in self.layers:
                x = apply(layer, x)
        return self.embedding.attend(self.norm(x))


def split(config: Config) -> tuple[Any, Any]:
    """The graph and the weights, drawn with seed 0."""
    return nnx.split(Decoder(config, nnx.Rngs(0)))


def train_step(graph: Any, weights: Any, moments: tuple[Any, Any], tokens: jax.Array) -> tuple[Any, Any, Any]:
    """Adam: (weights, moments, loss)."""
    value, gradients = jax.value_and_grad(partial(_loss, graph))(weights, tokens)
    return *adam(weights, moments, gradients), value


def _loss(graph: Any, weights: Any, tokens: jax.Array) -> jax.Array:
    return cross_entropy(nnx.merge(graph, weights)(tokens), tokens)
