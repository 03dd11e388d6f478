"""What the models share: drawing parameters, annotating, attention, losses, and the step of a trainer.

Parameters are numpy arrays drawn from one generator, so a program and its one-device twin get the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from examples.models.adam import AdamState, adam_step

Tree = Any
Say = Callable[..., jax.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A function, numpy arrays to call it with, and what `jax.jit` is told of it."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One row of the tables."""

    name: str
    axes: tuple[tuple[str, int], ...]
    """Names and sizes of the mesh axes; eight devices together."""
    build: Callable[[Mesh, int], Program]
    """The program on a mesh (one of the axes above, or all of size 1); the number scales the sizes, from 1."""
    is_long: bool = True
    """A training step or a long reduction: judged at 1e-4 instead of 1e-5."""

    def mesh(self, *, alone: bool = False, devices: Sequence[Any] | None = None) -> Mesh:
        """The mesh over the first of `devices` (default: JAX's own); `alone`: the same axes on one device."""
        names, sizes = zip(*self.axes, strict=True)
        sizes = (1,) * len(sizes) if alone else sizes
        found = jax.devices() if devices is None else devices
        return Mesh(np.array(found[: int(np.prod(sizes))]).reshape(sizes), names)


DATA_BY_MODEL = (("data", 2), ("model", 4))


class Draw:
    """Numpy arrays from one generator.

    >>> Draw(0).normal(2, 3).shape
    (2, 3)
    """

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def weight(self, *shape: int, fan_in: int | None = None) -> np.ndarray:
        """Normal, scaled so that a product over the first dim (or over `fan_in` terms) keeps its size."""
        return self.normal(*shape) * np.float32((fan_in or shape[0]) ** -0.5)

    def normal(self, *shape: int) -> np.ndarray:
        """Unit normal, f32."""
        return self.random.normal(size=shape).astype(np.float32)

    def integers(self, limit: int, *shape: int) -> np.ndarray:
        """From 0 up to `limit`, s32."""
        return self.random.integers(0, limit, shape, dtype=np.int32)

    def adam(self, params: Tree) -> AdamState:
        """A state from the middle of a run: at its start Adam divides noise by noise.

        The mean is zero, so that the next one is the gradient and nothing else, and shows what is wrong with it.
        """
        variance = jax.tree.map(lambda p: np.abs(self.normal(*p.shape)) + np.float32(0.5), params)
        return AdamState(jnp.int32(100), zeros(params), variance)


def zeros(tree: Tree) -> Tree:
    """Arrays of the same shapes: a momentum to begin with."""
    return jax.tree.map(np.zeros_like, tree)


def annotator(mesh: Mesh) -> Say:
    """`say(x, "data", None)`: x is split so; dims that are not named are whole."""

    def say(x: jax.Array, *axes: Any) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))

    return say


def norm_weights(width: int) -> dict[str, np.ndarray]:
    """Scale and bias of a layer norm."""
    return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}


def layer_norm(weights: Tree, x: jax.Array) -> jax.Array:
    """Zero mean and unit variance over the last dim, then scale and bias."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weights["scale"] + weights["bias"]


def attend(query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """[batch, time, heads, width] each -> the values that the queries ask for."""
    scores = jnp.einsum("bqhk,bthk->bhqt", query, key) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    return jnp.einsum("bhqt,bthk->bqhk", jax.nn.softmax(scores, axis=-1), value)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over all labels."""
    scores = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(scores, labels[..., None], axis=-1).mean()


def momentum_step(params: Tree, gradients: Tree, momentum: Tree) -> tuple[Tree, Tree]:
    """(new params, new momentum)."""
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum


def momentum_trainer(loss: Callable[..., jax.Array]) -> Callable[..., Any]:
    """`(params, momentum, *batch) -> (params, momentum, loss)`."""

    def step(params: Tree, momentum: Tree, *batch: jax.Array) -> tuple[Tree, Tree, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        return *momentum_step(params, gradients, momentum), value

    return step


def training(loss: Callable[..., jax.Array], params: Tree, *batch: np.ndarray) -> Program:
    """A step with momentum, its arguments, and no more annotations than `loss` makes."""
    return Program(function=momentum_trainer(loss), arguments=(params, zeros(params), *batch))


def adam_trainer(loss: Callable[..., jax.Array]) -> Callable[..., Any]:
    """`(params, optimizer, *batch) -> (params, optimizer, loss)`."""

    def step(params: Tree, optimizer: AdamState, *batch: jax.Array) -> tuple[Tree, AdamState, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        params, optimizer = adam_step(params, gradients, optimizer, learning_rate=1e-3)
        return params, optimizer, value

    return step
