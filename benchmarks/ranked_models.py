"""Models of any width and batch whose plans are run and ranked: perceptrons, transformers, convolutions; in f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import hlosharding as hs

_LAYERS, _LENGTH, _HEADS, _IMAGE, _VOCABULARY = 4, 32, 8, 8, 512


@dataclass(frozen=True)
class Family:
    """A model, with the sizes it is drawn in."""

    name: str
    traced: Callable[[int, int], hs.Module]
    """Of a batch size and a width."""
    batch: tuple[str, ...]
    batches: Sequence[int]
    widths: Sequence[int]


def _floats(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def _trained(loss: Callable[..., Any]) -> Callable[..., Any]:
    """One step of gradient descent."""

    def step(weights: Any, *batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, *batch)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value

    return step


def _perceptron(batch: int, width: int) -> hs.Module:
    def loss(weights: Any, x: Any, y: Any) -> Any:
        for w in weights:
            x = jax.nn.relu(x @ w)
        return jnp.mean((x - y) ** 2)

    x = _floats(batch, width)
    return hs.trace(_trained(loss))([_floats(width, width)] * _LAYERS, x, x)


def _normed(x: Any, scale: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5) * scale


def _attended(layer: Any, x: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = ((x @ layer[name]).reshape(batch, length, _HEADS, -1).transpose(0, 2, 1, 3) for name in "qkv")
    mixed = jax.nn.softmax(q @ k.swapaxes(-1, -2), -1) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ layer["o"]


def _transformed(weights: Any, tokens: Any) -> Any:
    x = weights["tokens"][tokens]
    for layer in weights["layers"]:
        x = x + _attended(layer, _normed(x, layer["first"]))
        x = x + jax.nn.gelu(_normed(x, layer["second"]) @ layer["up"]) @ layer["down"]
    return x


def _transformer_arguments(batch: int, width: int) -> tuple[Any, Any]:
    sizes = dict.fromkeys("qkvo", (width, width)) | {"up": (width, 4 * width), "down": (4 * width, width)}
    layer = {name: _floats(*dims) for name, dims in (sizes | {"first": (width,), "second": (width,)}).items()}
    weights = {"tokens": _floats(_VOCABULARY, width), "layers": [layer] * _LAYERS}
    return weights, jax.ShapeDtypeStruct((batch, _LENGTH), jnp.int32)


def _transformer(batch: int, width: int) -> hs.Module:
    def loss(weights: Any, tokens: Any) -> Any:
        return jnp.mean(_transformed(weights, tokens) ** 2)

    return hs.trace(_trained(loss))(*_transformer_arguments(batch, width))


def _inference(batch: int, width: int) -> hs.Module:
    return hs.trace(_transformed)(*_transformer_arguments(batch, width))


def _convolutions(batch: int, width: int) -> hs.Module:
    def loss(weights: Any, x: Any, y: Any) -> Any:
        for w in weights:
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_IMAGES))
        return jnp.mean((x.mean((1, 2)) - y) ** 2)

    x = _floats(batch, _IMAGE, _IMAGE, width)
    return hs.trace(_trained(loss))([_floats(3, 3, width, width)] * _LAYERS, x, _floats(batch, width))


_IMAGES = ("NHWC", "HWIO", "NHWC")

FAMILIES = (
    Family("perceptron, training", _perceptron, ("batch",), (128, 512, 2048), (256, 512, 1024)),
    Family("transformer, training", _transformer, ("batch",), (16, 64), (128, 256, 512)),
    Family("transformer, inference", _inference, ("tokens",), (16, 64, 128), (128, 256, 512)),
    Family("convolutions, training", _convolutions, ("batch",), (32, 128), (32, 64, 128)),
)
