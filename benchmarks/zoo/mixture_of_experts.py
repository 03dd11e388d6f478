"""A mixture-of-experts layer with its training step: tokens reach their experts by one-hot products, or by a sort.

Groups of tokens are split over `data`, experts over `model`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Say, Tree

EXPERTS, CHOICES = 8, 2


def init(scale: int) -> Tree:
    draw, width = Draw(), 32 * scale
    return {
        "router": draw.weight(width, EXPERTS),
        "up": draw.weight(EXPERTS, width, 4 * width, fan_in=width),
        "down": draw.weight(EXPERTS, 4 * width, width, fan_in=4 * width),
    }


def batch(scale: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets, [groups, tokens, width]."""
    draw = Draw(1)
    return draw.normal(8, 32 * scale, 32 * scale), draw.normal(8, 32 * scale, 32 * scale)


def experts(params: Tree, x: jax.Array, say: Say) -> jax.Array:
    """[experts, groups, capacity, width] -> the same."""
    x = say(x, "model", "data")
    hidden = jax.nn.relu(jnp.einsum("egcd,edf->egcf", x, say(params["up"], "model")))
    return say(jnp.einsum("egcf,efd->egcd", hidden, say(params["down"], "model")), "model", "data")


def dense_dispatch(params: Tree, x: jax.Array, say: Say) -> jax.Array:
    """GShard's: a one-hot mask says which token takes which place at which expert."""
    tokens = x.shape[1]
    capacity = CHOICES * tokens // EXPERTS
    gates = jax.nn.softmax(x @ params["router"])
    weights, chosen = jax.lax.top_k(gates, CHOICES)
    mask = jax.nn.one_hot(chosen, EXPERTS, dtype=x.dtype)
    flat = mask.swapaxes(1, 2).reshape(x.shape[0], CHOICES * tokens, EXPERTS)
    place = (jnp.cumsum(flat, axis=1) - flat).reshape(x.shape[0], CHOICES, tokens, EXPERTS).swapaxes(1, 2)
    place = (place * mask).sum(-1).astype(jnp.int32)
    places = jax.nn.one_hot(place, capacity, dtype=x.dtype)
    combine = say(jnp.einsum("gtk,gtke,gtkc->gtec", weights, mask, places), "data")
    dispatch = (combine > 0).astype(x.dtype)
    y = experts(params, jnp.einsum("gtec,gtd->egcd", dispatch, x), say)
    return jnp.einsum("gtec,egcd->gtd", combine, y)


def sorted_dispatch(params: Tree, x: jax.Array, say: Say) -> jax.Array:
    """Choices are sorted by expert; each takes its place behind those of its expert, late ones fall off."""
    groups, tokens, width = x.shape
    capacity = CHOICES * tokens // EXPERTS
    gates = jax.nn.softmax(x @ params["router"])
    weights, chosen = jax.lax.top_k(gates, CHOICES)
    chosen, weights = chosen.reshape(groups, -1), weights.reshape(groups, -1)
    order = say(jnp.argsort(chosen, axis=1), "data")
    ordered = jnp.take_along_axis(chosen, order, axis=1)
    begins = jax.vmap(lambda row: jnp.searchsorted(row, jnp.arange(EXPERTS)))(ordered)
    place = jnp.arange(CHOICES * tokens) - jnp.take_along_axis(begins, ordered, axis=1)
    slot = jnp.where(place < capacity, ordered * capacity + place, EXPERTS * capacity)
    taken = jnp.take_along_axis(x, (order // CHOICES)[..., None], axis=1)
    rows = jnp.arange(groups)[:, None]
    slots = jnp.zeros((groups, EXPERTS * capacity, width), x.dtype).at[rows, slot].set(taken, mode="drop")
    y = experts(params, slots.reshape(groups, EXPERTS, capacity, width).swapaxes(0, 1), say)
    y = say(y.swapaxes(0, 1).reshape(groups, EXPERTS * capacity, width), "data")
    back = y.at[rows, slot].get(mode="fill", fill_value=0) * jnp.take_along_axis(weights, order, axis=1)[..., None]
    return jnp.zeros_like(x).at[rows, order // CHOICES].add(back)


def builder(dispatch: Callable[[Tree, jax.Array, Say], jax.Array]) -> Callable[[Mesh, int], Program]:
    """The training step with one of the two."""

    def build(mesh: Mesh, scale: int) -> Program:
        say = parts.annotator(mesh)

        def loss(params: Tree, x: jax.Array, target: jax.Array) -> jax.Array:
            y = dispatch(params, say(x, "data"), say)
            return jnp.square(x + y - target).mean()

        return parts.training(loss, init(scale), *batch(scale))

    return build


MODELS = (
    Model(name="MoE, dense dispatch", axes=DATA_BY_MODEL, build=builder(dense_dispatch)),
    Model(name="MoE, sorted dispatch", axes=DATA_BY_MODEL, build=builder(sorted_dispatch)),
)
