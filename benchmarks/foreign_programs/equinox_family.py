"""Equinox and what is built on it: modules are pytrees, `filter_jit` leaves out what is no array."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, integers, put


class Layer(eqx.Module):
    """Attention and a perceptron."""

    attention: eqx.nn.MultiheadAttention
    perceptron: eqx.nn.MLP
    norms: list[eqx.nn.LayerNorm]

    def __init__(self, width: int, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(8, width, key=first)
        self.perceptron = eqx.nn.MLP(width, width, 4 * width, 1, jax.nn.gelu, key=second)
        self.norms = [eqx.nn.LayerNorm(width) for _ in range(2)]

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y, mask=jnp.tril(jnp.ones((len(x), len(x)), bool)))
        return x + jax.vmap(self.perceptron)(jax.vmap(self.norms[1])(x))


class LanguageModel(eqx.Module):
    """Two layers that predict the next token."""

    embedding: eqx.nn.Embedding
    layers: list[Layer]
    head: eqx.nn.Linear

    def __init__(self, words: int, width: int, key: jax.Array) -> None:
        keys = jax.random.split(key, 4)
        self.embedding = eqx.nn.Embedding(words, width, key=keys[0])
        self.layers = [Layer(width, k) for k in keys[1:3]]
        self.head = eqx.nn.Linear(width, words, key=keys[3])

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = jax.vmap(self.embedding)(tokens)
        for layer in self.layers:
            x = layer(x)
        return jax.vmap(self.head)(x)


def transformer(mesh: Mesh) -> Step:
    """Data parallel; the rows of every weight over `model`."""
    optimizer = optax.adam(1e-3, eps=1e-3)
    params, static = eqx.partition(LanguageModel(1024, 256, jax.random.key(0)), eqx.is_array)
    params = jax.tree.map(lambda w: put(mesh, w, "model"), params)

    def step(params: Any, moments: Any, tokens: jax.Array) -> Any:
        @eqx.filter_value_and_grad
        def loss(params: Any) -> jax.Array:
            logits = jax.vmap(eqx.combine(params, static))(tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        value, gradients = loss(params)
        updates, moments = optimizer.update(gradients, moments, params)
        return eqx.apply_updates(params, updates), moments, value

    return Step(
        step, (params, optimizer.init(params), put(mesh, integers(0, 1024, 16, 65), "data")), eqx.filter_jit(step)
    )
