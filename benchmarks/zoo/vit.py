"""A vision transformer: patches by a strided convolution, a class token in front (an odd sequence), heads split."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Say, Tree

HEADS, PATCH, CLASSES = 8, 4, 100


def init(scale: int) -> Tree:
    draw, width, patches = Draw(), 64 * scale, (4 * scale) ** 2
    head = width // HEADS
    return {
        "patch": draw.weight(PATCH, PATCH, 3, width, fan_in=3 * PATCH**2),
        "class": draw.normal(1, 1, width),
        "positions": draw.normal(patches + 1, width),
        "layers": [
            {
                "first": parts.norm_weights(width),
                "qkv": draw.weight(width, 3, HEADS, head),
                "out": draw.weight(HEADS, head, width, fan_in=width),
                "second": parts.norm_weights(width),
                "up": draw.weight(width, 4 * width),
                "up_bias": np.zeros(4 * width, np.float32),
                "down": draw.weight(4 * width, width),
            }
            for _ in range(2)
        ],
        "norm": parts.norm_weights(width),
        "head": draw.weight(width, CLASSES),
    }


def patches(params: Tree, images: jax.Array) -> jax.Array:
    """[batch, patches + 1, width]; the first is the class token."""
    x = jax.lax.conv_general_dilated(
        images, params["patch"], (PATCH, PATCH), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = x.reshape(x.shape[0], -1, x.shape[-1])
    first = jnp.broadcast_to(params["class"], (x.shape[0], 1, x.shape[-1]))
    return jnp.concatenate([first, x], axis=1) + params["positions"]


def block(layer: Tree, x: jax.Array, say: Say) -> jax.Array:
    qkv = jnp.einsum("btd,dchk->btchk", parts.layer_norm(layer["first"], x), say(layer["qkv"], None, None, "model"))
    x = x + jnp.einsum("bqhk,hkd->bqd", parts.attend(*jnp.moveaxis(qkv, 2, 0)), say(layer["out"], "model"))
    hidden = parts.layer_norm(layer["second"], x) @ say(layer["up"], None, "model") + layer["up_bias"]
    return x + jax.nn.gelu(hidden) @ say(layer["down"], "model")


def build(mesh: Mesh, scale: int) -> Program:
    say, draw = parts.annotator(mesh), Draw(1)

    def loss(params: Tree, images: jax.Array, labels: jax.Array) -> jax.Array:
        x = patches(params, say(images, "data"))
        for layer in params["layers"]:
            x = block(layer, x, say)
        return parts.cross_entropy(parts.layer_norm(params["norm"], x)[:, 0] @ params["head"], labels)

    size = 4 * scale * PATCH
    return parts.training(loss, init(scale), draw.normal(16, size, size, 3), draw.integers(CLASSES, 16))


MODELS = (Model(name="ViT", axes=DATA_BY_MODEL, build=build),)
