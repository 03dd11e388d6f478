"""Graphs and points in space: jraph, e3nn."""

from __future__ import annotations

from typing import Any

import e3nn_jax as e3nn
import jax
import jax.numpy as jnp
import jraph
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, integers, normal, put


def graph_network(mesh: Mesh) -> Step:
    """Messages over edges, which are split, and a gradient step."""
    weights = put(mesh, {"edge": 0.1 * normal(0, 160, 32), "node": 0.1 * normal(1, 96, 64)})
    ends, nodes = put(mesh, integers(2, 512, 2, 4096), None, "data"), put(mesh, normal(3, 512, 64))
    edges, target = put(mesh, normal(4, 4096, 32), "data"), put(mesh, normal(5, 512, 64))

    def loss(weights: Any, nodes: jax.Array, edges: jax.Array, ends: jax.Array, target: jax.Array) -> jax.Array:
        net = jraph.InteractionNetwork(
            update_edge_fn=lambda *x: jax.nn.relu(jnp.concatenate(x, -1) @ weights["edge"]),
            update_node_fn=lambda *x: jax.nn.relu(jnp.concatenate(x, -1) @ weights["node"]),
        )
        counts = jnp.array([512]), jnp.array([4096])
        graph = jraph.GraphsTuple(nodes, edges, ends[1], ends[0], None, *counts)
        for _ in range(3):
            graph = net(graph)
        return jnp.square(graph.nodes - target).mean()

    return Step(jax.value_and_grad(loss), (weights, nodes, edges, ends, target))


def equivariant(mesh: Mesh) -> Step:
    """Messages by tensor products with spherical harmonics, and forces; edges split."""
    irreps = e3nn.Irreps("16x0e + 16x1o")
    features, places = put(mesh, normal(0, 256, irreps.dim)), put(mesh, normal(1, 256, 3))
    ends = put(mesh, integers(2, 256, 2, 2048), None, "data")

    def energy(places: jax.Array, features: jax.Array, ends: jax.Array) -> jax.Array:
        vectors = e3nn.IrrepsArray("1o", places[ends[0]] - places[ends[1]])
        radius = jnp.sqrt(jnp.square(vectors.array).sum(-1) + 1e-3)
        basis = e3nn.bessel(radius, 8, 4.0).sum(-1, keepdims=True)
        harmonics = e3nn.spherical_harmonics([0, 1, 2], vectors, True) * basis
        messages = e3nn.tensor_product(e3nn.IrrepsArray(irreps, features)[ends[1]], harmonics)
        summed = e3nn.scatter_sum(messages, dst=ends[0], output_size=len(places))
        return e3nn.norm(summed, squared=True).array.sum() * 1e-3

    return Step(jax.value_and_grad(energy), (places, features, ends), energy)
