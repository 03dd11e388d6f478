"""A small convolutional classifier in plain JAX, its loss and its training step.

Two annotations: images are split over the batch (data axis) and over their rows (model axis), so that every convolution
and pooling needs its neighbours' borders; the dense head's weight is split over classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from examples.models.adam import AdamState, adam_step, adam_zeros

Params = dict[str, Any]
LAYOUT = ("NHWC", "HWIO", "NHWC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Sizes of the net and of its batch."""

    channels: tuple[int, ...] = (16, 32, 64)
    image: int = 32
    classes: int = 16
    batch: int = 16


def init(config: Config, seed: int = 0) -> Params:
    """Parameters drawn with He's scale."""
    keys = jax.random.split(jax.random.key(seed), len(config.channels) + 1)
    widths = (3, *config.channels)

    def kernel(key: jax.Array, before: int, after: int) -> Params:
        scale = (2 / (9 * before)) ** 0.5
        return {"kernel": scale * jax.random.normal(key, (3, 3, before, after)), "bias": jnp.zeros(after)}

    return {
        "blocks": [kernel(*sizes) for sizes in zip(keys[:-1], widths[:-1], widths[1:], strict=True)],
        "head": 0.05 * jax.random.normal(keys[-1], (config.channels[-1], config.classes)),
    }


def convolve(block: Params, x: jax.Array, stride: int) -> jax.Array:
    """A 3 x 3 convolution with zero padding, its bias, and relu."""
    y = jax.lax.conv_general_dilated(x, block["kernel"], (stride, stride), "SAME", dimension_numbers=LAYOUT)
    return jax.nn.relu(y + block["bias"])


def max_pool(x: jax.Array) -> jax.Array:
    """The largest of every 2 x 2 pixels."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def logits(params: Params, images: jax.Array, mesh: Mesh) -> jax.Array:
    """[batch, height, width, 3] images -> [batch, classes]."""
    x = with_sharding_constraint(images, NamedSharding(mesh, P("data", "model", None, None)))
    first, *others = params["blocks"]
    x = max_pool(convolve(first, x, stride=1))
    for block in others:
        x = convolve(block, x, stride=2)
    head = with_sharding_constraint(params["head"], NamedSharding(mesh, P(None, "model")))
    return x.mean((1, 2)) @ head


def loss(params: Params, images: jax.Array, labels: jax.Array, mesh: Mesh) -> jax.Array:
    """Mean cross entropy of the labels."""
    scores = jax.nn.log_softmax(logits(params, images, mesh))
    return -jnp.take_along_axis(scores, labels[:, None], axis=-1).mean()


def init_optimizer(params: Params) -> AdamState:
    """Adam's state before the first step."""
    return adam_zeros(params)


def training_step(mesh: Mesh) -> Any:
    """The function to compile: (params, optimizer, (images, labels)) -> (params, optimizer, loss)."""

    def step(
        params: Params, optimizer: AdamState, batch: tuple[jax.Array, jax.Array]
    ) -> tuple[Params, AdamState, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, *batch, mesh)
        params, optimizer = adam_step(params, gradients, optimizer, learning_rate=3e-3)
        return params, optimizer, value

    return step


def batches(config: Config, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Endless (images, labels): each class is one colour under noise."""
    random = np.random.default_rng(seed)
    size = (config.image, config.image, 3)
    colours = random.normal(size=(config.classes, 1, 1, 3)).astype(np.float32)
    while True:
        labels = random.integers(0, config.classes, config.batch, dtype=np.int32)
        noise = random.normal(size=(config.batch, *size)).astype(np.float32)
        yield colours[labels] + noise, labels


def abstract_arguments(config: Config) -> tuple[Params, AdamState, tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]]:
    """The step's arguments as shapes."""
    params = jax.eval_shape(lambda: init(config))
    images = jax.ShapeDtypeStruct((config.batch, config.image, config.image, 3), jnp.float32)
    return params, jax.eval_shape(adam_zeros, params), (images, jax.ShapeDtypeStruct((config.batch,), jnp.int32))
