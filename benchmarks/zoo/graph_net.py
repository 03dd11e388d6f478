"""Message passing on a graph: gathers by edge, a softmax over each node's edges, scattered sums; edges are split."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import Draw, Model, Program, Tree

LAYERS = 2


def layer(weights: Tree, nodes: jax.Array, edges: jax.Array) -> jax.Array:
    """Graph attention; `edges` is [edges, 2]: from, to."""
    source, target = edges[:, 0], edges[:, 1]
    x = nodes @ weights["project"]
    scores = jax.nn.leaky_relu(x[source] @ weights["from"] + x[target] @ weights["to"])
    scores = jnp.exp(scores - scores.max())
    total = jax.ops.segment_sum(scores, target, nodes.shape[0])
    messages = x[source] * (scores / (total[target] + 1e-9))[:, None]
    return jax.nn.elu(jax.ops.segment_sum(messages, target, nodes.shape[0])) + nodes


def build(mesh: Mesh, scale: int) -> Program:
    say, draw, width, count = parts.annotator(mesh), Draw(), 16 * scale, 64 * scale
    params = [
        {"project": draw.weight(width, width), "from": draw.weight(width), "to": draw.weight(width)}
        for _ in range(LAYERS)
    ]

    def loss(params: Tree, nodes: jax.Array, edges: jax.Array, target: jax.Array) -> jax.Array:
        for weights in params:
            nodes = layer(weights, nodes, say(edges, "data"))
        return jnp.square(nodes - target).mean()

    edges = draw.integers(count, 16 * count, 2)
    return parts.training(loss, params, draw.normal(count, width), edges, draw.normal(count, width))


MODELS = (Model(name="graph attention", axes=(("data", 8),), build=build),)
