"""Gradients are summed over microbatches in a scan, then one step is made.

One reduction over the devices is enough, not one a microbatch.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

MICROBATCHES, LAYERS = 4, 2


def forward(params: Tree, x: jax.Array) -> jax.Array:
    for layer in params:
        x = x + jax.nn.gelu(parts.layer_norm(layer["norm"], x) @ layer["up"]) @ layer["down"]
    return x


def builder(weights: str | None) -> Callable[[Mesh, int], Program]:
    """Data parallel; hidden dims are split over `weights`, too, if given."""

    def build(mesh: Mesh, scale: int) -> Program:
        say, draw, width = parts.annotator(mesh), Draw(), 64 * scale
        params = [
            {
                "norm": parts.norm_weights(width),
                "up": draw.weight(width, 4 * width),
                "down": draw.weight(4 * width, width),
            }
            for _ in range(LAYERS)
        ]

        def split(layer: Tree) -> Tree:
            if weights is None:
                return layer
            return layer | {"up": say(layer["up"], None, weights), "down": say(layer["down"], weights)}

        def loss(params: Tree, x: jax.Array, target: jax.Array) -> jax.Array:
            return jnp.square(forward([split(layer) for layer in params], x) - target).mean()

        def step(params: Tree, momentum: Tree, x: jax.Array, target: jax.Array) -> tuple[Tree, Tree, jax.Array]:
            x, target = say(x, None, "data"), say(target, None, "data")

            def one(total: Tree, batch: tuple[jax.Array, jax.Array]) -> tuple[Tree, None]:
                return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(params, *batch)), None

            start = jnp.float32(0), jax.tree.map(jnp.zeros_like, params)
            (value, gradients), _ = jax.lax.scan(one, start, (x, target))
            return *parts.momentum_step(params, gradients, momentum), value

        shape = MICROBATCHES, 16, 8 * scale, width
        data = draw.normal(*shape), draw.normal(*shape)
        return Program(function=step, arguments=(params, parts.zeros(params), *data))

    return build


MODELS = (
    Model(name="accumulation in a scan, data", axes=(("data", 8),), build=builder(None)),
    Model(name="accumulation in a scan, tensor", axes=DATA_BY_MODEL, build=builder("model")),
)
