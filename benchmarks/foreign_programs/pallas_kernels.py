"""Pallas' own kernels, interpreted: on CPU devices a `while` over blocks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu import softmax
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, normal, put


def attention(mesh: Mesh) -> Step:
    """A row of attention whose softmax is a kernel."""

    def attended(x: jax.Array, weights: Any) -> jax.Array:
        query, key, value = (jnp.einsum("bsd,dhk->bhsk", x, w) for w in weights)
        scores = jnp.einsum("bhqk,bhsk->bhqs", query, key) * query.shape[-1] ** -0.5
        shares = softmax.softmax(scores, interpret=True)
        return jnp.einsum("bhqs,bhsk->bqhk", shares, value)

    weights = put(mesh, [normal(seed, 128, 8, 32) * 128**-0.5 for seed in range(3)], None, "model")
    return Step(attended, (put(mesh, normal(3, 4, 32, 128), "data"), weights))
