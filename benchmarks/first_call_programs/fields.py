"""Images and graphs: a conv net, a variational autoencoder, a denoising U-Net, an interaction network."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

DATA = (("data", 8),)
LAYOUT = ("NHWC", "HWIO", "NHWC")


def kernel(draw: Draw, size: int, before: int, after: int) -> Tree:
    """Weights and bias."""
    weights = draw.weight(size, size, before, after, fan_in=size * size * before)
    return {"kernel": weights, "bias": np.zeros(after, np.float32)}


def convolve(own: Tree, x: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    y = jax.lax.conv_general_dilated(
        x, own["kernel"], (stride, stride), "SAME", dimension_numbers=LAYOUT, feature_group_count=groups
    )
    return y + own["bias"]


def widen(own: Tree, x: jax.Array) -> jax.Array:
    """Twice the rows and columns."""
    return jax.lax.conv_transpose(x, own["kernel"], (2, 2), "SAME", dimension_numbers=LAYOUT) + own["bias"]


def conv_net(mesh: Mesh, scale: int) -> Program:
    """ConvNeXt: depthwise kernels and perceptrons of channels, nine blocks in three stages; images split by batch."""
    draw, width, say = Draw(), 16 * scale, parts.annotator(mesh)

    def block(channels: int) -> Tree:
        return {
            "depthwise": kernel(draw, 7, 1, channels),
            "norm": parts.norm_weights(channels),
            "up": draw.weight(channels, 4 * channels),
            "down": draw.weight(4 * channels, channels),
        }

    stages = [width, 2 * width, 4 * width]
    params: Tree = {
        "stem": kernel(draw, 4, 3, width),
        "narrow": [kernel(draw, 2, a, b) for a, b in pairwise(stages)],
        "stages": [[block(channels) for _ in range(3)] for channels in stages],
        "head": draw.weight(stages[-1], 100),
    }

    def loss(params: Tree, images: jax.Array, labels: jax.Array) -> jax.Array:
        x = convolve(params["stem"], say(images, "data"), 4)
        for n, stage in enumerate(params["stages"]):
            x = convolve(params["narrow"][n - 1], x, 2) if n else x
            for own in stage:
                y = parts.layer_norm(own["norm"], convolve(own["depthwise"], x, groups=x.shape[-1]))
                x = x + jax.nn.gelu(y @ own["up"]) @ own["down"]
        return parts.cross_entropy(x.mean((1, 2)) @ params["head"], labels)

    return parts.training(loss, params, draw.normal(16, 64, 64, 3), draw.integers(100, 16))


def autoencoder(mesh: Mesh, scale: int) -> Program:
    """A variational one of convolutions, its noise drawn in the step; data parallel, Adam."""
    draw, width, say = Draw(), 8 * scale, parts.annotator(mesh)
    code, inner = 16 * scale, 64 * width
    params = {
        "down": [kernel(draw, 3, a, b) for a, b in ((3, width), (width, 2 * width), (2 * width, 4 * width))],
        "mean": draw.weight(inner, code),
        "spread": draw.weight(inner, code),
        "open": draw.weight(code, inner),
        "up": [kernel(draw, 3, a, b) for a, b in ((4 * width, 2 * width), (2 * width, width), (width, 3))],
    }

    def loss(params: Tree, images: jax.Array, seed: jax.Array) -> jax.Array:
        x = images = say(images, "data")
        for own in params["down"]:
            x = jax.nn.relu(convolve(own, x, 2))
        shape, x = x.shape, x.reshape(x.shape[0], -1)
        mean, spread = x @ params["mean"], x @ params["spread"]
        noise = jax.random.normal(jax.random.key(seed), mean.shape)
        y = jax.nn.relu((mean + jnp.exp(spread / 2) * noise) @ params["open"]).reshape(shape)
        for n, own in enumerate(params["up"]):
            y = widen(own, jax.nn.relu(y) if n else y)
        divergence = (jnp.exp(spread) + jnp.square(mean) - 1 - spread).sum(-1) / 2
        return jnp.square(y - images).sum((1, 2, 3)).mean() + divergence.mean()

    batch = draw.normal(32, 32, 32, 3), np.int32(7)
    return Program(function=parts.adam_trainer(loss), arguments=(params, draw.adam(params), *batch))


def denoiser(mesh: Mesh, scale: int) -> Program:
    """A U-Net told the time, with group norms and attention at its lowest level; batch and rows split."""
    draw, width, say = Draw(), 8 * scale, parts.annotator(mesh)

    def block(before: int, after: int) -> Tree:
        return {
            "first": kernel(draw, 3, before, after),
            "second": kernel(draw, 3, after, after),
            "time": draw.weight(4 * width, after),
            "norm": parts.norm_weights(after),
            "skip": draw.weight(before, after),
        }

    params: Tree = {
        "time": draw.weight(width, 4 * width),
        "enter": kernel(draw, 3, 3, width),
        "down": [block(width, 2 * width), block(2 * width, 4 * width)],
        "narrow": [kernel(draw, 3, 2 * width, 2 * width), kernel(draw, 3, 4 * width, 4 * width)],
        "middle": {"qkv": draw.weight(4 * width, 12 * width), "out": draw.weight(4 * width, 4 * width)},
        "widen": [kernel(draw, 2, 4 * width, 4 * width), kernel(draw, 2, 2 * width, 2 * width)],
        "up": [block(8 * width, 2 * width), block(4 * width, width)],
        "leave": kernel(draw, 3, width, 3),
    }

    def group_norm(own: Tree, x: jax.Array) -> jax.Array:
        y = x.reshape(*x.shape[:3], 8, -1)
        mean = y.mean((1, 2, 4), keepdims=True)
        y = (y - mean) * jax.lax.rsqrt(jnp.square(y - mean).mean((1, 2, 4), keepdims=True) + 1e-5)
        return y.reshape(x.shape) * own["scale"] + own["bias"]

    def through(own: Tree, x: jax.Array, time: jax.Array) -> jax.Array:
        y = convolve(own["first"], x) + (time @ own["time"])[:, None, None]
        return convolve(own["second"], jax.nn.silu(group_norm(own["norm"], y))) + x @ own["skip"]

    def attended(own: Tree, x: jax.Array) -> jax.Array:
        flat = x.reshape(x.shape[0], -1, 1, x.shape[-1])
        mixed = parts.attend(*jnp.split(flat @ own["qkv"], 3, axis=-1))
        return x + (mixed @ own["out"]).reshape(x.shape)

    def forward(params: Tree, x: jax.Array, time: jax.Array) -> jax.Array:
        half = width // 2
        angles = time[:, None] * 1e4 ** (-jnp.arange(half) / half)
        told = jax.nn.silu(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1) @ params["time"])
        x, skips = convolve(params["enter"], x), list[jax.Array]()
        for own, narrow in zip(params["down"], params["narrow"], strict=True):
            skips.append(through(own, x, told))
            x = convolve(narrow, skips[-1], 2)
        x = attended(params["middle"], x)
        for own, wider in zip(params["up"], params["widen"], strict=True):
            x = through(own, jnp.concatenate([widen(wider, x), skips.pop()], -1), told)
        return convolve(params["leave"], jax.nn.silu(x))

    def loss(params: Tree, images: jax.Array, noise: jax.Array, time: jax.Array) -> jax.Array:
        images, share = say(images, "data", "model"), jnp.cos(time)[:, None, None, None]
        noisy = share * images + jnp.sqrt(1 - jnp.square(share)) * noise
        return jnp.square(forward(params, noisy, time) - noise).mean()

    batch = draw.normal(8, 32, 32, 3), draw.normal(8, 32, 32, 3), draw.normal(8)
    return parts.training(loss, params, *batch)


def interactions(mesh: Mesh, scale: int) -> Program:
    """An interaction network: six rounds of messages over edges, which are split, summed at their nodes."""
    draw, width, nodes, say = Draw(), 16 * scale, 128 * scale, parts.annotator(mesh)

    def perceptron(before: int) -> Tree:
        return {
            "in": draw.weight(before, 2 * width),
            "out": draw.weight(2 * width, width),
            "norm": parts.norm_weights(width),
        }

    def through(own: Tree, *x: jax.Array) -> jax.Array:
        return parts.layer_norm(own["norm"], jax.nn.relu(jnp.concatenate(x, -1) @ own["in"]) @ own["out"])

    params = {
        "nodes": perceptron(8),
        "edges": perceptron(4),
        "rounds": [{"edge": perceptron(3 * width), "node": perceptron(2 * width)} for _ in range(6)],
        "head": draw.weight(width, 3),
    }

    def loss(params: Tree, node: jax.Array, edge: jax.Array, ends: jax.Array, target: jax.Array) -> jax.Array:
        ends, edge = say(ends, None, "data"), say(edge, "data")
        x, e = through(params["nodes"], node), through(params["edges"], edge)
        for own in params["rounds"]:
            e = e + through(own["edge"], e, x[ends[0]], x[ends[1]])
            x = x + through(own["node"], x, jax.ops.segment_sum(e, ends[1], nodes))
        return jnp.square(x @ params["head"] - target).mean()

    batch = draw.normal(nodes, 8), draw.normal(8 * nodes, 4), draw.integers(nodes, 2, 8 * nodes)
    return parts.training(loss, params, *batch, draw.normal(nodes, 3))


MODELS = (
    Model(name="ConvNeXt", axes=DATA, build=conv_net),
    Model(name="variational autoencoder", axes=DATA, build=autoencoder),
    Model(name="denoising U-Net", axes=DATA_BY_MODEL, build=denoiser),
    Model(name="interaction network", axes=DATA, build=interactions),
)
