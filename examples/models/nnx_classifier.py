"""A text classifier written with Flax NNX and Optax the way their users write it, with shardings added.

The additions are four: `nnx.with_partitioning` on three initialisers, and the constraint on the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.lax import with_sharding_constraint
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Sizes of the model and of its batch."""

    layers: int = 2
    width: int = 128
    heads: int = 4
    vocabulary: int = 512
    context: int = 32
    classes: int = 8
    batch: int = 16


def _split(*axes: str | None) -> Any:
    return nnx.with_partitioning(nnx.initializers.lecun_normal(), axes)


class Block(nnx.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.attention_norm = nnx.LayerNorm(config.width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(config.heads, config.width, decode=False, rngs=rngs)
        self.mlp_norm = nnx.LayerNorm(config.width, rngs=rngs)
        self.up = nnx.Linear(config.width, 4 * config.width, kernel_init=_split(None, "model"), rngs=rngs)
        self.down = nnx.Linear(4 * config.width, config.width, kernel_init=_split("model", None), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(nnx.gelu(self.up(self.mlp_norm(x))))


class Classifier(nnx.Module):
    """Token embedding, blocks, mean over time, a dense head."""

    def __init__(self, config: Config, mesh: Mesh, *, rngs: nnx.Rngs) -> None:
        self.mesh = mesh
        self.embed = nnx.Embed(config.vocabulary, config.width, embedding_init=_split("model", None), rngs=rngs)
        self.blocks = nnx.List([Block(config, rngs=rngs) for _ in range(config.layers)])
        self.norm = nnx.LayerNorm(config.width, rngs=rngs)
        self.head = nnx.Linear(config.width, config.classes, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.embed(with_sharding_constraint(tokens, NamedSharding(self.mesh, P("data", None))))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(axis=1))


def build(config: Config, mesh: Mesh, seed: int = 0) -> tuple[Any, Any]:
    """(static part, state) of the model and its optimizer; the state's arrays are laid out on `mesh`."""
    with jax.set_mesh(mesh):
        model = Classifier(config, mesh, rngs=nnx.Rngs(seed))
        optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    return nnx.split((model, optimizer))


def loss(model: Classifier, tokens: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross entropy of the labels."""
    return optax.softmax_cross_entropy_with_integer_labels(model(tokens), labels).mean()


def training_step(static: Any) -> Any:
    """The function to compile: (state, tokens, labels) -> (state, loss)."""

    def step(state: Any, tokens: jax.Array, labels: jax.Array) -> tuple[Any, jax.Array]:
        model, optimizer = nnx.merge(static, state)
        value, gradients = nnx.value_and_grad(loss)(model, tokens, labels)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), value

    return step


def shardings(state: Any, mesh: Mesh) -> Any:
    """The NamedShardings that `nnx.with_partitioning` left on the state, as a tree like the state."""
    return nnx.get_named_sharding(state, mesh)


def jit_options(state: Any, mesh: Mesh) -> dict[str, Any]:
    """What `jax.jit` and `hs.jit` are told of the step: the state keeps its shardings, the batch is free."""
    where = shardings(state, mesh)
    return {"in_shardings": (where, None, None), "out_shardings": (where, None)}


def batches(config: Config, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Endless (tokens, labels): words of the label's own slice of the vocabulary are twice as likely."""
    random = np.random.default_rng(seed)
    words = config.vocabulary // config.classes
    while True:
        labels = random.integers(0, config.classes, config.batch, dtype=np.int32)
        any_word = random.integers(0, config.vocabulary, (config.batch, config.context))
        own_word = labels[:, None] * words + random.integers(0, words, any_word.shape)
        yield np.where(random.random(any_word.shape) < 0.5, own_word, any_word).astype(np.int32), labels


def abstract_arguments(config: Config, mesh: Mesh) -> tuple[Any, jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """The step's arguments as shapes, the state's with their shardings."""
    _, state = build(config, mesh)
    where = shardings(state, mesh)
    state = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, where)
    tokens = jax.ShapeDtypeStruct((config.batch, config.context), jnp.int32)
    return state, tokens, jax.ShapeDtypeStruct((config.batch,), jnp.int32)
