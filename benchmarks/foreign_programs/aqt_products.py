"""AQT: products of int8 in a Linen model, forward and backward."""

from __future__ import annotations

from typing import Any

import aqt.jax.v2.config as aqt_config
import flax.linen as nn
import jax
import jax.numpy as jnp
from aqt.jax.v2.flax.aqt_flax import AqtDotGeneral
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, normal, put


class Perceptron(nn.Module):
    """Two layers, between them a nonlinearity."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        dot = AqtDotGeneral(aqt_config.config_v3(fwd_bits=8, dlhs_bits=8, drhs_bits=None))
        x = nn.relu(nn.Dense(1024, dot_general=dot)(x))
        return nn.Dense(256, dot_general=dot)(x)


def perceptron(mesh: Mesh) -> Step:
    """A gradient, data by tensor parallel: columns, then rows."""
    model, inputs = Perceptron(), normal(0, 256, 256)
    params = model.init(jax.random.key(0), inputs)["params"]
    specs = {"Dense_0": (None, "model"), "Dense_1": ("model", None)}
    params = {
        name: put(mesh, layer) | {"kernel": put(mesh, layer["kernel"], *specs[name])}
        for name, layer in params.items()
    }  # fmt: skip

    def loss(params: Any, inputs: jax.Array) -> jax.Array:
        rngs = {"params": jax.random.key(1)}  # it asks for one, and rounds to the nearest
        return jnp.square(model.apply({"params": params}, inputs, rngs=rngs)).mean()

    return Step(jax.value_and_grad(loss), (params, put(mesh, inputs, "data")))
