"""Flax's NNX: modules that hold their weights, which `nnx.jit` takes out and puts back."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, normal, put


class Autoencoder(nnx.Module):
    """Variational: a mean and a variance a sample."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.code = nnx.Linear(784, 512, rngs=rngs), nnx.Linear(512, 64, rngs=rngs)
        self.second, self.pixels = nnx.Linear(32, 512, rngs=rngs), nnx.Linear(512, 784, rngs=rngs)
        self.rngs = rngs

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        mean, deviation = jnp.split(self.code(nnx.relu(self.first(x))), 2, axis=-1)
        sample = mean + jnp.exp(deviation) * jax.random.normal(self.rngs(), mean.shape)
        return self.pixels(nnx.relu(self.second(sample))), mean, deviation


def trained(model: Autoencoder, optimizer: nnx.Optimizer[Any], images: jax.Array) -> jax.Array:
    """One step, in place."""

    def loss(model: Autoencoder) -> jax.Array:
        logits, mean, log = model(images)
        divergence = 0.5 * (jnp.square(mean) + jnp.exp(2 * log) - 2 * log - 1).sum(-1)
        return (optax.sigmoid_binary_cross_entropy(logits, images).sum(-1) + divergence).mean()

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


def autoencoder(mesh: Mesh) -> Step:
    """Data parallel."""
    model = Autoencoder(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3, eps=1e-3), wrt=nnx.Param)
    definition, state = nnx.split((model, optimizer))

    def step(train: Any, state: Any, images: jax.Array) -> Any:
        both = nnx.merge(definition, state)
        return train(*both, images), nnx.state(both)

    arguments = put(mesh, state), put(mesh, jax.nn.sigmoid(normal(0, 64, 784)), "data")
    return Step(partial(step, trained), arguments, partial(step, nnx.jit(trained)))
