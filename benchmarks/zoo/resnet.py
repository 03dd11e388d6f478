"""A residual net with batch norm: images split over the batch, or over batch and rows; a grouped variant (ResNeXt).

Batch norm reads statistics of the whole batch, and every convolution needs its neighbours' border rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

CLASSES, GROUPS = 16, 8


def init(scale: int, groups: int) -> Tree:
    draw, width = Draw(), 16 * scale

    def kernel(size: int, before: int, after: int, parts_: int = 1) -> Tree:
        shape = (size, size, before // parts_, after)
        weights = draw.weight(*shape, fan_in=int(np.prod(shape[:3])))
        return {"kernel": weights, "scale": np.ones(after, np.float32), "bias": np.zeros(after, np.float32)}

    def block(before: int, after: int) -> Tree:
        return {
            "first": kernel(3, before, after),
            "second": kernel(3, after, after, groups),
            "short": kernel(1, before, after),
        }

    return {
        "stem": kernel(7, 3, width),
        "blocks": [block(width, 2 * width), block(2 * width, 4 * width)],
        "head": draw.weight(4 * width, CLASSES),
    }


def convolve(weights: Tree, x: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    """Convolution and batch norm."""
    x = jax.lax.conv_general_dilated(
        x, weights["kernel"], (stride, stride), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
    )  # fmt: skip
    mean = x.mean((0, 1, 2))
    variance = jnp.square(x - mean).mean((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weights["scale"] + weights["bias"]


def max_pool(x: jax.Array) -> jax.Array:
    """3 x 3, stride 2: windows overlap."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def logits(params: Tree, x: jax.Array, groups: int) -> jax.Array:
    x = max_pool(jax.nn.relu(convolve(params["stem"], x, 2)))
    for block in params["blocks"]:
        y = jax.nn.relu(convolve(block["first"], x, 2))
        x = jax.nn.relu(convolve(block["second"], y, 1, groups) + convolve(block["short"], x, 2))
    return x.mean((1, 2)) @ params["head"]


def builder(*split: Any, groups: int = 1) -> Callable[[Mesh, int], Program]:
    """The training step on images that are split so."""

    def build(mesh: Mesh, scale: int) -> Program:
        say, draw = parts.annotator(mesh), Draw(1)

        def loss(params: Tree, images: jax.Array, labels: jax.Array) -> jax.Array:
            return parts.cross_entropy(logits(params, say(images, *split), groups), labels)

        images = draw.normal(16, 64, 64, 3)
        return parts.training(loss, init(scale, groups), images, draw.integers(CLASSES, 16))

    return build


MODELS = (
    Model(name="ResNet, data", axes=(("data", 8),), build=builder("data")),
    Model(name="ResNet, data and rows", axes=DATA_BY_MODEL, build=builder("data", "model")),
    Model(name="ResNeXt, data", axes=(("data", 8),), build=builder("data", groups=GROUPS)),
)
