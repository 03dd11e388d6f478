"""The training step of `walkthrough.md`: a Flax transformer with Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax
from flax import nnx


class Block(nnx.Module):
    """Attention and a perceptron."""

    def __init__(self, width: int, heads: int, rngs: nnx.Rngs) -> None:
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norms[0](x), mask=nnx.make_causal_mask(x[..., 0]))
        return x + self.down(jax.nn.gelu(self.up(self.norms[1](x))))


class Model(nnx.Module):
    """A small GPT."""

    def __init__(self, layers: int, width: int, heads: int, words: int) -> None:
        rngs = nnx.Rngs(0)
        self.embed = nnx.Embed(words, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, heads, rngs) for _ in range(layers)])
        self.head = nnx.Linear(width, words, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def training_step(layers: int, width: int, heads: int, words: int) -> tuple[Callable[..., Any], Callable[[], Any]]:
    """(step, what makes its first parameters and moments); nothing is computed yet."""
    optimizer = optax.adam(1e-2, eps=1e-3)
    graph, _ = nnx.split(nnx.eval_shape(lambda: Model(layers, width, heads, words)))

    def loss(params: Any, tokens: Any) -> Any:
        scores = nnx.merge(graph, params)(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(scores, tokens[:, 1:]).mean()

    def step(params: Any, moments: Any, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        updates, moments = optimizer.update(grads, moments)
        return optax.apply_updates(params, updates), moments, value

    def start() -> Any:
        params = nnx.split(Model(layers, width, heads, words))[1]
        return params, optimizer.init(params)

    return step, start
