"""A U-Net: down by strided convolutions, up by transposed ones, skips by concatenation; batch and rows are split."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

LAYOUT = ("NHWC", "HWIO", "NHWC")


def init(scale: int) -> Tree:
    draw, width = Draw(), 8 * scale

    def kernel(size: int, before: int, after: int) -> Tree:
        weights = draw.weight(size, size, before, after, fan_in=size * size * before)
        return {"kernel": weights, "bias": np.zeros(after, np.float32)}

    return {
        "enter": kernel(3, 4, width),
        "down": [kernel(3, width, 2 * width), kernel(3, 2 * width, 4 * width)],
        "middle": kernel(3, 4 * width, 4 * width),
        "up": [kernel(2, 4 * width, 2 * width), kernel(2, 2 * width, width)],
        "merge": [kernel(3, 4 * width, 2 * width), kernel(3, 2 * width, width)],
        "leave": kernel(1, width, 4),
    }


def convolve(weights: Tree, x: jax.Array, stride: int = 1) -> jax.Array:
    y = jax.lax.conv_general_dilated(x, weights["kernel"], (stride, stride), "SAME", dimension_numbers=LAYOUT)
    return jax.nn.silu(y + weights["bias"])


def widen(weights: Tree, x: jax.Array) -> jax.Array:
    """Twice the rows and columns."""
    y = jax.lax.conv_transpose(x, weights["kernel"], (2, 2), "SAME", dimension_numbers=LAYOUT)
    return jax.nn.silu(y + weights["bias"])


def forward(params: Tree, x: jax.Array) -> jax.Array:
    x = convolve(params["enter"], x)
    skips: list[jax.Array] = []
    for down in params["down"]:
        skips.append(x)
        x = convolve(down, x, stride=2)
    x = x + convolve(params["middle"], x)
    for up, merge in zip(params["up"], params["merge"], strict=True):
        x = convolve(merge, jnp.concatenate([widen(up, x), skips.pop()], axis=-1))
    return convolve(params["leave"], x)


def build(mesh: Mesh, scale: int) -> Program:
    say, draw = parts.annotator(mesh), Draw(1)

    def loss(params: Tree, noisy: jax.Array, noise: jax.Array) -> jax.Array:
        return jnp.square(forward(params, say(noisy, "data", "model")) - noise).mean()

    images = draw.normal(8, 32, 32, 4), draw.normal(8, 32, 32, 4)
    return parts.training(loss, init(scale), *images)


MODELS = (Model(name="U-Net", axes=DATA_BY_MODEL, build=build),)
