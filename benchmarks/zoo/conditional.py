"""A mixture of whole nets, one of them chosen for each batch by a conditional; an adapter that may be left out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Say, Tree

NETS = 3


def dense(weights: Tree, x: jax.Array, say: Say) -> jax.Array:
    hidden = jax.nn.gelu(x @ say(weights["up"], None, "model"))
    return x + hidden @ say(weights["down"], "model")


def build(mesh: Mesh, scale: int) -> Program:
    say, draw, width = parts.annotator(mesh), Draw(), 64 * scale

    def net() -> Tree:
        return {"up": draw.weight(width, 4 * width), "down": draw.weight(4 * width, width)}

    params = {"nets": [net() for _ in range(NETS)], "adapter": draw.weight(width, width)}

    def loss(params: Tree, x: jax.Array, target: jax.Array, kind: jax.Array) -> jax.Array:
        x = say(x, "data")
        y = jax.lax.switch(kind, [lambda x, w=w: dense(w, x, say) for w in params["nets"]], x)
        y = jax.lax.cond(jnp.square(y).mean() > 1, lambda y: y @ params["adapter"], lambda y: y, y)
        return jnp.square(y - target).mean()

    shape = 16, 16 * scale, width
    return parts.training(loss, params, draw.normal(*shape), draw.normal(*shape), np.array(1, np.int32))


MODELS = (Model(name="nets in a conditional", axes=DATA_BY_MODEL, build=build),)
