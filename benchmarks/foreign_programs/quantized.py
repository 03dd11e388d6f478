"""Qwix: a Linen model whose products are of int8, forward and backward."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import qwix
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, integers, normal, put


class Perceptron(nn.Module):
    """Three layers."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in (1024, 1024):
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(16)(x)


def perceptron(mesh: Mesh) -> Step:
    """A gradient, data by tensor parallel."""
    rule = qwix.QtRule(module_path=".*", weight_qtype=jnp.int8, act_qtype=jnp.int8)
    model, inputs = qwix.quantize_model(Perceptron(), qwix.QtProvider([rule])), normal(0, 128, 256)
    params = model.init(jax.random.key(0), inputs)["params"]
    params = jax.tree.map(lambda w: put(mesh, w, *[None] * (w.ndim - 1), "model"), params)

    def loss(params: Any, inputs: jax.Array, labels: jax.Array) -> jax.Array:
        logits = model.apply({"params": params}, inputs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    batch = put(mesh, (inputs, integers(1, 16, 128)), "data")
    return Step(jax.value_and_grad(loss), (params, *batch))
