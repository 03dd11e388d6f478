"""DLRM: embedding tables (rows split, or one table a device), bags of looked-up rows, pairwise products, two MLPs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

TABLES, BAG, DENSE = 8, 4, 13


def init(scale: int) -> Tree:
    draw, width = Draw(), 16 * scale
    pairs = (TABLES + 1) * TABLES // 2

    def mlp(*sizes: int) -> list[np.ndarray]:
        return [draw.weight(*pair) for pair in pairwise(sizes)]

    return {
        "tables": draw.weight(TABLES, 512 * scale, width, fan_in=width),
        "bottom": mlp(DENSE, 64 * scale, width),
        "top": mlp(width + pairs, 64 * scale, 1),
    }


def mlp(weights: Sequence[jax.Array], x: jax.Array) -> jax.Array:
    for weight in weights:
        x = jax.nn.relu(x @ weight)
    return x


def forward(params: Tree, dense: jax.Array, sparse: jax.Array) -> jax.Array:
    """Click logits of a batch."""
    bags = jax.vmap(lambda table, ids: table[ids].sum(1), in_axes=(0, 1), out_axes=1)(params["tables"], sparse)
    bottom = mlp(params["bottom"], dense)
    features = jnp.concatenate([bottom[:, None], bags], axis=1)
    products = jnp.einsum("bid,bjd->bij", features, features)
    rows, columns = np.tril_indices(TABLES + 1, -1)
    top = jnp.concatenate([bottom, products[:, rows, columns]], axis=1)
    *hidden, last = params["top"]
    return (mlp(hidden, top) @ last)[:, 0]


def builder(*table_split: Any) -> Callable[[Mesh, int], Program]:
    """The training step with tables that are split so."""

    def build(mesh: Mesh, scale: int) -> Program:
        say, draw = parts.annotator(mesh), Draw(1)

        def loss(params: Tree, dense: jax.Array, sparse: jax.Array, clicked: jax.Array) -> jax.Array:
            params = params | {"tables": say(params["tables"], *table_split)}
            scores = forward(params, say(dense, "data"), say(sparse, "data"))
            return jnp.mean(jnp.logaddexp(0, scores) - scores * clicked)

        size = 64 * scale
        batch = draw.normal(size, DENSE), draw.integers(512 * scale, size, TABLES, BAG), draw.integers(2, size)
        return parts.training(loss, init(scale), *batch)

    return build


MODELS = (
    Model(name="DLRM, rows split", axes=DATA_BY_MODEL, build=builder(None, "model")),
    Model(name="DLRM, tables split", axes=DATA_BY_MODEL, build=builder("model")),
)
