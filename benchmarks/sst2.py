"""Flax's sst2 example in plain JAX: a data-parallel step of it showed how slow a default can be that is not time.

Embedding, bidirectional LSTM, attention over its keys; the cell is Flax's
`OptimizedLSTMCell`: in each step the gates' weights are joined to one product, and its result is cut.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

_BATCH, _TIME, _WORDS, _WIDTH, _HIDDEN = 64, 100, 16_384, 300, 256
"""Of sst2's classifier."""


def _gates(weights: Tree, x: jax.Array) -> list[jax.Array]:
    """One product for all, its weights joined in every step."""
    kernel = jnp.concatenate([weights[name]["kernel"] for name in "ifgo"], axis=-1)
    biases = [weights[name]["bias"] for name in "ifgo" if "bias" in weights[name]]
    return jnp.split(x @ kernel + (jnp.concatenate(biases, axis=-1) if biases else 0), 4, axis=-1)


def _lstm(weights: Tree, x: jax.Array) -> jax.Array:
    """[batch, time, width] -> the hidden state of every time."""

    def advance(state: tuple[jax.Array, jax.Array], now: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, cell = state
        enter, forget, new, leave = map(jnp.add, _gates(weights["hidden"], hidden), _gates(weights["input"], now))
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        return (hidden, cell), hidden

    zeros = jnp.zeros((x.shape[0], _HIDDEN), x.dtype)
    return jax.lax.scan(advance, (zeros, zeros), x.swapaxes(0, 1))[1].swapaxes(0, 1)


@jax.vmap
def _flipped(x: jax.Array, length: jax.Array) -> jax.Array:
    """A row's words in reverse order, what pads it left behind them: the example's `flip_sequences`."""
    return jnp.flip(jnp.roll(x, x.shape[0] - length, axis=0), axis=0)


def _logits(params: Tree, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
    x = params["embedding"][tokens]
    ahead = _lstm(params["ahead"], x)
    back = _flipped(_lstm(params["back"], _flipped(x, lengths)), lengths)
    states = jnp.concatenate([ahead, back], axis=-1)
    scores = (jnp.tanh(states @ params["keys"]) @ params["energy"])[..., 0]
    is_word = jnp.arange(tokens.shape[1])[None] < lengths[:, None]
    shares = jax.nn.softmax(jnp.where(is_word, scores, -jnp.inf), axis=-1)
    context = jnp.einsum("bt,btd->bd", shares, states)
    return (jnp.tanh(context @ params["dense"]) @ params["head"])[:, 0]


def _classifier_weights() -> Tree:
    draw = Draw()

    def cell() -> Tree:
        bias = {"bias": np.zeros(_HIDDEN, np.float32)}
        return {
            "input": {gate: {"kernel": draw.weight(_WIDTH, _HIDDEN)} for gate in "ifgo"},
            "hidden": {gate: {"kernel": draw.weight(_HIDDEN, _HIDDEN)} | bias for gate in "ifgo"},
        }

    return {
        "embedding": draw.weight(_WORDS, _WIDTH, fan_in=_WIDTH),
        "ahead": cell(),
        "back": cell(),
        "keys": draw.weight(2 * _HIDDEN, _HIDDEN),
        "energy": draw.weight(_HIDDEN, 1),
        "dense": draw.weight(2 * _HIDDEN, _HIDDEN),
        "head": draw.weight(_HIDDEN, 1),
    }


def _classifier(split: Callable[[parts.Say, Tree], Tree]) -> Callable[[Mesh, int], Program]:
    """A training step, its batch over `data`; `split`: how the weights lie."""

    def build(mesh: Mesh, _scale: int) -> Program:
        say = parts.annotator(mesh)

        def loss(params: Tree, tokens: jax.Array, lengths: jax.Array, labels: jax.Array) -> jax.Array:
            logits = _logits(split(say, params), say(tokens, "data"), say(lengths, "data"))
            return (jax.nn.softplus(logits) - logits * labels).mean()

        draw = Draw(1)
        batch = draw.integers(_WORDS, _BATCH, _TIME), 1 + draw.integers(_TIME, _BATCH), draw.normal(_BATCH)
        return parts.training(loss, _classifier_weights(), *batch)

    return build


def _copied(say: parts.Say, params: Tree) -> Tree:
    return jax.tree.map(say, params)


MODELS: tuple[Model, ...] = (
    Model(name="LSTM classifier, 8", axes=(("data", 8),), build=_classifier(_copied)),
    Model(name="LSTM classifier, 2x4", axes=DATA_BY_MODEL, build=_classifier(_copied)),
)
