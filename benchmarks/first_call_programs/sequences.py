"""Recurrences: an LSTM both ways that classifies, a GRU that translates with attention, an RWKV, and a DLRM beside."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

DATA = (("data", 8),)


def gated(draw: Draw, width: int, gates: int) -> Tree:
    """The weights of a recurrent cell."""
    return {
        "input": draw.weight(width, gates * width),
        "hidden": draw.weight(width, gates * width),
        "bias": np.zeros(gates * width, np.float32),
    }


def lstm(own: Tree, x: jax.Array, *, reverse: bool) -> jax.Array:
    """[time, batch, width] -> hidden states of all times."""

    def advance(state: tuple[jax.Array, jax.Array], now: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, cell = state
        enter, forget, leave, new = jnp.split(now + hidden @ own["hidden"], 4, axis=-1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros(x.shape[1:], x.dtype)
    return jax.lax.scan(advance, (start, start), x @ own["input"] + own["bias"], reverse=reverse)[1]


def lstm_classifier(mesh: Mesh, scale: int) -> Program:
    """Two LSTMs in opposite directions, their mean over what is no padding classified; data parallel, Adam."""
    draw, width, say = Draw(), 64 * scale, parts.annotator(mesh)
    params = {
        "embedding": draw.weight(1000 * scale, width, fan_in=width),
        "cells": [gated(draw, width, 4) for _ in range(2)],
        "head": draw.weight(2 * width, 2),
        "bias": np.zeros(2, np.float32),
    }

    def loss(params: Tree, tokens: jax.Array, lengths: jax.Array, labels: jax.Array) -> jax.Array:
        tokens = say(tokens, "data")
        x = params["embedding"][tokens].swapaxes(0, 1)
        both = [lstm(own, x, reverse=bool(n)) for n, own in enumerate(params["cells"])]
        is_word = (jnp.arange(tokens.shape[1]) < lengths[:, None])[..., None]
        mean = (jnp.concatenate(both, -1).swapaxes(0, 1) * is_word).sum(1) / lengths[:, None]
        return parts.cross_entropy(mean @ params["head"] + params["bias"], labels)

    batch = draw.integers(1000 * scale, 64, 48), 1 + draw.integers(48, 64), draw.integers(2, 64)
    return Program(function=parts.adam_trainer(loss), arguments=(params, draw.adam(params), *batch))


def gru(own: Tree, hidden: jax.Array, now: jax.Array) -> jax.Array:
    """One step."""
    width = hidden.shape[-1]
    entered, kept = now @ own["input"] + own["bias"], hidden @ own["hidden"]
    gates = jax.nn.sigmoid(entered[:, : 2 * width] + kept[:, : 2 * width])
    reset, update = gates[:, :width], gates[:, width:]
    new = jnp.tanh(entered[:, 2 * width :] + reset * kept[:, 2 * width :])
    return update * hidden + (1 - update) * new


def gru_translation(mesh: Mesh, scale: int) -> Program:
    """A GRU reads, another writes and attends to what was read; data by the split vocabulary."""
    draw, width, words, say = Draw(), 64 * scale, 1024 * scale, parts.annotator(mesh)
    params = {
        "source": draw.weight(words, width, fan_in=width),
        "target": draw.weight(words, width, fan_in=width),
        "reader": gated(draw, width, 3),
        "writer": gated(draw, width, 3),
        "query": draw.weight(width, width),
        "join": draw.weight(2 * width, width),
        "head": draw.weight(width, words),
    }

    def loss(params: Tree, source: jax.Array, target: jax.Array) -> jax.Array:
        source, target = say(source, "data"), say(target, "data")
        head = say(params["head"], None, "model")
        first = jnp.zeros((source.shape[0], params["query"].shape[0]))

        def read(hidden: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
            hidden = gru(params["reader"], hidden, now)
            return hidden, hidden

        def write(hidden: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
            hidden = gru(params["writer"], hidden, now)
            scores = jax.nn.softmax(jnp.einsum("bd,tbd->bt", hidden @ params["query"], memory))
            context = jnp.einsum("bt,tbd->bd", scores, memory)
            return hidden, jnp.tanh(jnp.concatenate([hidden, context], -1) @ params["join"])

        last, memory = jax.lax.scan(read, first, params["source"][source].swapaxes(0, 1))
        _, made = jax.lax.scan(write, last, params["target"][target[:, :-1]].swapaxes(0, 1))
        return parts.cross_entropy(made.swapaxes(0, 1) @ head, target[:, 1:])

    return parts.training(loss, params, draw.integers(words, 32, 24), draw.integers(words, 32, 25))


def rwkv(mesh: Mesh, scale: int) -> Program:
    """Four layers of time mixing, whose states decay in a scan, and channel mixing; channels over `model`."""
    draw, width, say = Draw(), 64 * scale, parts.annotator(mesh)
    half = lambda: np.full(width, 0.5, np.float32)  # noqa: E731
    params = [
        {name: draw.weight(width, width) for name in ("key", "value", "gate", "out", "receive")}
        | {"decay": draw.normal(width), "bonus": draw.normal(width)}
        | {
            "mix": [half() for _ in range(5)],
            "up": draw.weight(width, 4 * width),
            "down": draw.weight(4 * width, width),
        }
        | {"first": parts.norm_weights(width), "second": parts.norm_weights(width)}
        for _ in range(4)
    ]

    def mixed(x: jax.Array, share: jax.Array) -> jax.Array:
        before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        return x * share + before * (1 - share)

    def weighted(own: Tree, key: jax.Array, value: jax.Array) -> jax.Array:
        """Means of the values over all earlier times, weighted by keys that fade."""

        def advance(
            state: tuple[jax.Array, ...], now: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, ...], jax.Array]:
            above, below, most = state
            k, v = now
            peak = jnp.maximum(most, own["bonus"] + k)
            old, new = jnp.exp(most - peak), jnp.exp(own["bonus"] + k - peak)
            out = (old * above + new * v) / (old * below + new)
            faded = most - jnp.exp(own["decay"])
            peak = jnp.maximum(faded, k)
            old, new = jnp.exp(faded - peak), jnp.exp(k - peak)
            return (old * above + new * v, old * below + new, peak), out

        zeros = jnp.zeros_like(key[:, 0])
        start = zeros, zeros, zeros - 1e30
        over_time = key.swapaxes(0, 1), value.swapaxes(0, 1)
        return jax.lax.scan(advance, start, over_time)[1].swapaxes(0, 1)

    def loss(params: Tree, x: jax.Array, target: jax.Array) -> jax.Array:
        x = say(x, "data")
        for own in params:
            y, mix = parts.layer_norm(own["first"], x), own["mix"]
            key, value, gate = (
                say(mixed(y, share) @ own[name], "data", None, "model")
                for share, name in zip(mix, ("key", "value", "gate"), strict=False)
            )
            x = x + (jax.nn.sigmoid(gate) * weighted(own, key, value)) @ own["out"]
            y = parts.layer_norm(own["second"], x)
            hidden = say(jnp.square(jax.nn.relu(mixed(y, mix[3]) @ own["up"])), "data", None, "model")
            x = x + jax.nn.sigmoid(mixed(y, mix[4]) @ own["receive"]) * (hidden @ own["down"])
        return jnp.square(x - target).mean()

    return parts.training(loss, params, draw.normal(16, 64, width), draw.normal(16, 64, width))


def dlrm(mesh: Mesh, scale: int) -> Program:
    """26 tables split by rows, features multiplied in pairs, perceptrons below and above; momentum."""
    draw, width, say = Draw(), 16 * scale, parts.annotator(mesh)

    def perceptron(*widths: int) -> Tree:
        return [(draw.weight(a, b), np.zeros(b, np.float32)) for a, b in pairwise(widths)]

    def through(layers: Tree, x: jax.Array) -> jax.Array:
        for weights, bias in layers:
            x = jax.nn.relu(x @ weights + bias)
        return x

    params = {
        "tables": [draw.weight(256 * (n + 1), width, fan_in=width) for n in range(26)],
        "below": perceptron(13, 8 * width, 4 * width, width),
        "above": perceptron(width + 351, 8 * width, 4 * width, 1),
    }

    def loss(params: Tree, dense: jax.Array, sparse: jax.Array, labels: jax.Array) -> jax.Array:
        dense, sparse = say(dense, ("data", "model")), say(sparse, ("data", "model"))
        tables = [say(table, "model") for table in params["tables"]]
        below = through(params["below"], dense)
        features = jnp.stack([below, *(table[sparse[:, n]] for n, table in enumerate(tables))], axis=1)
        rows, columns = np.tril_indices(27, -1)
        pairs = jnp.einsum("bnd,bmd->bnm", features, features)[:, rows, columns]
        score = through(params["above"], jnp.concatenate([below, pairs], axis=1))[:, 0]
        return (jax.nn.softplus(score) - labels * score).mean()

    sparse = np.stack([draw.integers(256 * (n + 1), 256) for n in range(26)], axis=1)
    return parts.training(loss, params, draw.normal(256, 13), sparse, draw.normal(256))


MODELS = (
    Model(name="LSTM classifier", axes=DATA, build=lstm_classifier),
    Model(name="GRU with attention", axes=DATA_BY_MODEL, build=gru_translation),
    Model(name="RWKV", axes=DATA_BY_MODEL, build=rwkv),
    Model(name="recommender of 26 tables", axes=DATA_BY_MODEL, build=dlrm),
)
