"""Wide residual nets (Zagoruyko and Komodakis 2016) of bottleneck blocks, as people write them in JAX, with momentum.

Batch norm is of groups of images (Hoffer et al. 2017): statistics of a whole microbatch would make the step another
one for each number of microbatches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

Tree = Any
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
"""Of each group of blocks with as many pixels, by layers."""


@dataclass(frozen=True, kw_only=True)
class ResNetConfig:
    """What tells one of them from another."""

    channels: int
    factor: int
    """Of what a bottleneck's middle has over its own."""
    layers: int = 50
    pixels: int = 224
    classes: int = 1024
    group: int = 2
    """Images of which statistics are made."""

    @property
    def blocks(self) -> Iterator[tuple[int, int]]:
        """Channels of bottlenecks, and the stride of each."""
        for depth, count in enumerate(BLOCKS[self.layers]):
            yield from ((self.channels * 2**depth, 2 if depth and not first else 1) for first in range(count))


def train_step(
    config: ResNetConfig, weights: Tree, moments: Tree, images: jax.Array, labels: jax.Array
) -> tuple[Tree, Tree, jax.Array]:
    """A step of Nesterov's momentum: (weights, moments, loss)."""
    value, gradients = jax.value_and_grad(partial(_loss, config))(weights, images, labels)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return jax.tree.map(lambda w, m, g: w - 0.1 * (0.9 * m + g), weights, moments, gradients), moments, value


def arguments(config: ResNetConfig, batch: int) -> tuple[Tree, Tree, jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Of `train_step` with so many images."""
    images = jax.ShapeDtypeStruct((batch, config.pixels, config.pixels, 3), jnp.float32)
    weights = _parameters(config)
    return weights, weights, images, jax.ShapeDtypeStruct((batch,), jnp.int32)


def _parameters(config: ResNetConfig) -> Tree:
    def array(*dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, jnp.float32)

    def convolution(size: int, before: int, after: int) -> Tree:
        return {"kernel": array(size, size, before, after), "scale": array(after), "shift": array(after)}

    blocks, before = list[Tree](), config.channels
    for own, _ in config.blocks:
        middle, after = own * config.factor, 4 * own
        block = [convolution(1, before, own), convolution(3, own, middle), convolution(1, middle, after)]
        blocks.append({"main": block, **({"short": convolution(1, before, after)} if before != after else {})})
        before = after
    stem = convolution(7, 3, config.channels)
    return {"stem": stem, "blocks": blocks, "output": array(before, config.classes)}


def _loss(config: ResNetConfig, weights: Tree, images: jax.Array, labels: jax.Array) -> jax.Array:
    x = jax.nn.relu(normed(config, weights["stem"], images, 2))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for block, (_, stride) in zip(weights["blocks"], config.blocks, strict=True):
        x = jax.checkpoint(partial(_block, config, stride))(block, x)
    logits = jnp.mean(x, (1, 2)) @ weights["output"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1))


def _block(config: ResNetConfig, stride: int, weights: Tree, x: jax.Array) -> jax.Array:
    first, second, third = weights["main"]
    made = jax.nn.relu(normed(config, first, x, 1))
    made = normed(config, third, jax.nn.relu(normed(config, second, made, stride)), 1)
    return jax.nn.relu(made + (normed(config, weights["short"], x, stride) if "short" in weights else x))


def normed(config: ResNetConfig, weights: Tree, x: jax.Array, stride: int) -> jax.Array:
    """A convolution, normed over the pixels of each group of images."""
    strides: Sequence[int] = (stride, stride)
    x = jax.lax.conv_general_dilated(x, weights["kernel"], strides, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return _group_norm(x.reshape(-1, config.group, *x.shape[1:]), weights["scale"], weights["shift"]).reshape(x.shape)


@jax.named_scope("batch_norm")
def _group_norm(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    mean = jnp.mean(x, (1, 2, 3), keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), (1, 2, 3), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift
