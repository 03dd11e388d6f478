"""MobileNet v2's training step: many convolutions, hardly two of one shape, and grouped ones of one channel a group.

Batch norm reads statistics of the whole batch.  Sizes are those of the paper (Sandler et al. 2018), images of 96 x 96.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.zoo.resnet import convolve

CLASSES, BATCH, PIXELS = 1000, 64, 96
STAGES = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
"""(how much wider inside, channels, blocks, stride of the first)"""
Tree = Any


def _weights(*shape: int) -> Tree:
    channels = shape[-1]
    one = jax.ShapeDtypeStruct((channels,), np.float32)
    return {"kernel": jax.ShapeDtypeStruct(shape, np.float32), "scale": one, "bias": one}


def parameters() -> tuple[Tree, list[tuple[int, bool]]]:
    """The weights' shapes, and of each block its stride and whether its input is added to its result."""
    channels, blocks, how = 32, [], list[tuple[int, bool]]()
    for wider, after, count, first_stride in STAGES:
        for number in range(count):
            stride, inside = first_stride if number == 0 else 1, channels * wider
            block = {"depthwise": _weights(3, 3, 1, inside), "project": _weights(1, 1, inside, after)}
            blocks.append(block | ({"expand": _weights(1, 1, channels, inside)} if wider > 1 else {}))
            how.append((stride, stride == 1 and channels == after))
            channels = after
    head = jax.ShapeDtypeStruct((1280, CLASSES), np.float32)
    return {"stem": _weights(3, 3, 3, 32), "blocks": blocks, "last": _weights(1, 1, channels, 1280), "head": head}, how


def _relu6(x: jax.Array) -> jax.Array:
    return jnp.clip(x, 0, 6)


def loss(params: Tree, images: jax.Array, labels: jax.Array, how: list[tuple[int, bool]]) -> jax.Array:
    """Mean cross entropy."""
    x = _relu6(convolve(params["stem"], images, 2))
    for block, (stride, is_added) in zip(params["blocks"], how, strict=True):
        y = _relu6(convolve(block["expand"], x)) if "expand" in block else x
        y = _relu6(convolve(block["depthwise"], y, stride, y.shape[-1]))
        y = convolve(block["project"], y)
        x = x + y if is_added else y
    logits = _relu6(convolve(params["last"], x)).mean((1, 2)) @ params["head"]
    return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, CLASSES)).sum(-1).mean()


def lowered(mesh: Mesh) -> Any:
    """The step, images split over the mesh's first axis, kernels by channels over its second if it has one."""
    shapes, how = parameters()
    batch, channel = mesh.axis_names[0], mesh.axis_names[1] if len(mesh.axis_names) > 1 else None

    def placed(shape: Any, *spec: str | None) -> Any:
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=NamedSharding(mesh, P(*spec)))

    def step(params: Tree, images: jax.Array, labels: jax.Array) -> Tree:
        value, slopes = jax.value_and_grad(loss)(params, images, labels, how)
        return value, jax.tree.map(lambda p, s: p - 0.1 * s, params, slopes)

    weights = jax.tree.map(lambda s: placed(s, None, None, None, channel) if len(s.shape) == 4 else placed(s), shapes)
    images = placed(jax.ShapeDtypeStruct((BATCH, PIXELS, PIXELS, 3), np.float32), batch)
    return jax.jit(step).lower(weights, images, placed(jax.ShapeDtypeStruct((BATCH,), np.int32), batch))
