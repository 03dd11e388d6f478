"""Training steps of any depth, of four architectures: what the passes are timed on.

Sizes are those of models that people train, where they matter to a pass: the widths decide what is cheap to move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases import Case, gpt2_case
from benchmarks.zoo import mixture_of_experts, parts, resnet, t5
from benchmarks.zoo.parts import Draw, Tree
from examples import devices

_SCALE = 4


def gpt2(layers: int) -> Case:
    """GPT-2 at its own width and vocabulary, batch over `data`, heads and hidden dims over `model`."""
    return gpt2_case(layers=layers, width=768, heads=12, vocabulary=50_257, context=256)


def encoder_decoder(layers: int) -> Case:
    """T5: a third of the layers encode, the others decode and attend to what was encoded."""
    mesh = devices.data_by_model()
    return Case.of(f"encoder-decoder, {layers} layers", t5.build(mesh, _SCALE, depth=layers // 2), mesh)


def experts(layers: int) -> Case:
    """A transformer whose dense layers are mixtures of experts, tokens dispatched by one-hot products."""
    mesh = devices.data_by_model()
    say, width = parts.annotator(mesh), 32 * _SCALE

    def loss(params: Tree, x: jax.Array, target: jax.Array) -> jax.Array:
        x = say(x, "data")
        for own, mixture in params:
            y = t5.norm(own["norm"], x)
            x = x + t5.attention(own, y, y, None, say)
            x = x + mixture_of_experts.dense_dispatch(mixture, x, say)
        return jnp.square(x - target).mean()

    params = [(t5.attention_weights(Draw(), width), mixture_of_experts.init(_SCALE)) for _ in range(layers)]
    return Case.of(f"experts, {layers} layers", parts.training(loss, params, *mixture_of_experts.batch(_SCALE)), mesh)


def residual(layers: int) -> Case:
    """ResNet of bottlenecks (ResNet-50 has 48 layers in them), images split over batch and rows."""
    mesh = devices.data_by_model()
    say, draw = parts.annotator(mesh), Draw()
    blocks = _blocks(layers // 3)
    params = {"stem": _kernel(7, 3, 64), "head": draw.weight(2048, 1000)} | {
        str(n): _bottleneck(*block) for n, block in enumerate(blocks)
    }

    def loss(params: Tree, images: jax.Array, labels: jax.Array) -> jax.Array:
        x = resnet.max_pool(jax.nn.relu(resnet.convolve(params["stem"], say(images, "data", "model"), 2)))
        for n, (_before, _inside, stride) in enumerate(blocks):
            x = _through(params[str(n)], x, stride)
        return parts.cross_entropy(x.mean((1, 2)) @ params["head"], labels)

    images = np.zeros((16, 128, 128, 3), np.float32)
    return Case.of(f"ResNet, {layers} layers", parts.training(loss, params, images, np.zeros(16, np.int32)), mesh)


def _blocks(count: int) -> list[tuple[int, int, int]]:
    """(channels before, channels inside, stride) of each bottleneck, shared out over the stages as in the paper."""
    counts = [max(1, count * part // 16) for part in (3, 4, 6, 3)]
    counts[2] += count - sum(counts)
    blocks, before = list[tuple[int, int, int]](), 64
    for stage, number in enumerate(counts):
        for n in range(number):
            inside = 64 << stage
            blocks.append((before, inside, 2 if n == 0 and stage else 1))
            before = 4 * inside
    return blocks


def _kernel(size: int, before: int, after: int) -> Tree:
    one = np.ones(after, np.float32)
    return {"kernel": np.zeros((size, size, before, after), np.float32), "scale": one, "bias": one}


def _bottleneck(before: int, inside: int, stride: int) -> Tree:
    block = {
        "down": _kernel(1, before, inside),
        "middle": _kernel(3, inside, inside),
        "up": _kernel(1, inside, 4 * inside),
    }
    return block | ({"short": _kernel(1, before, 4 * inside)} if stride > 1 or before != 4 * inside else {})


def _through(block: Tree, x: jax.Array, stride: int) -> jax.Array:
    y = jax.nn.relu(resnet.convolve(block["down"], x))
    y = jax.nn.relu(resnet.convolve(block["middle"], y, stride))
    short = resnet.convolve(block["short"], x, stride) if "short" in block else x
    return jax.nn.relu(resnet.convolve(block["up"], y) + short)


ARCHITECTURES: dict[str, Callable[[int], Any]] = {
    "GPT-2": gpt2,
    "encoder-decoder": encoder_decoder,
    "experts": experts,
    "ResNet": residual,
}
"""By name, what makes the case of so many layers."""
