"""An LSTM language model in a scan: gates are split over `model`; each time step gathers or sums the hidden state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree


def init(scale: int) -> Tree:
    draw, width = Draw(), 32 * scale
    return {
        "embedding": draw.weight(64 * scale, width, fan_in=width),
        "input": draw.weight(width, 4, width),
        "hidden": draw.weight(width, 4, width),
        "bias": np.zeros((4, width), np.float32),
    }


def lstm(params: Tree, x: jax.Array) -> jax.Array:
    """[time, batch, width] -> hidden states of all times."""

    def advance(state: tuple[jax.Array, jax.Array], now: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, cell = state
        gates = now + jnp.einsum("bd,dgf->bgf", hidden, params["hidden"]) + params["bias"]
        enter, forget, leave = jax.nn.sigmoid(gates[:, 0]), jax.nn.sigmoid(gates[:, 1]), jax.nn.sigmoid(gates[:, 2])
        cell = forget * cell + enter * jnp.tanh(gates[:, 3])
        hidden = leave * jnp.tanh(cell)
        return (hidden, cell), hidden

    zeros = jnp.zeros(x.shape[1:], x.dtype)
    return jax.lax.scan(advance, (zeros, zeros), jnp.einsum("tbd,dgf->tbgf", x, params["input"]))[1]


def build(mesh: Mesh, scale: int) -> Program:
    say = parts.annotator(mesh)

    def loss(params: Tree, tokens: jax.Array) -> jax.Array:
        split = {name: say(params[name], None, None, "model") for name in ("input", "hidden")}
        x = params["embedding"][say(tokens, None, "data")[:-1]]
        return parts.cross_entropy(lstm(params | split, x) @ params["embedding"].T, tokens[1:])

    return parts.training(loss, init(scale), Draw(1).integers(64 * scale, 16 * scale + 1, 16))


MODELS = (Model(name="LSTM in a scan", axes=DATA_BY_MODEL, build=build),)
