"""A diagonal state-space layer, as in S5 and Mamba: a linear recurrence by an associative scan or step by step.

Channels are split, or time, along which the scan combines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

STATES = 4


def init(scale: int) -> Tree:
    draw, width = Draw(), 32 * scale
    return {
        "enter": draw.weight(width, 2 * width),
        "step": draw.weight(2 * width, 2 * width),
        "decay": draw.normal(2 * width, STATES),
        "read": draw.weight(2 * width, STATES, fan_in=STATES),
        "write": draw.weight(2 * width, STATES, fan_in=STATES),
        "leave": draw.weight(2 * width, width),
    }


def combine(first: Any, second: Any) -> Any:
    """h -> a h + b, one after the other."""
    return second[0] * first[0], second[0] * first[1] + second[1]


def forward(params: Tree, x: jax.Array, *, by_scan: bool) -> jax.Array:
    """[batch, time, width] -> the same."""
    u = jax.nn.silu(x @ params["enter"])
    step = jax.nn.softplus(u @ params["step"])[..., None]
    decay = jnp.exp(-step * jnp.exp(params["decay"]))
    driven = step * params["write"] * u[..., None]
    states = sequential(decay, driven) if by_scan else jax.lax.associative_scan(combine, (decay, driven), axis=1)[1]
    return jnp.einsum("btds,ds->btd", states, params["read"]) @ params["leave"]


def sequential(decay: jax.Array, driven: jax.Array) -> jax.Array:
    """The same recurrence, one time step after the other."""

    def advance(state: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        state = now[0] * state + now[1]
        return state, state

    over_time = jnp.moveaxis(decay, 1, 0), jnp.moveaxis(driven, 1, 0)
    return jnp.moveaxis(jax.lax.scan(advance, jnp.zeros_like(driven[:, 0]), over_time)[1], 0, 1)


def builder(*split: Any, weights: Any = None, by_scan: bool = False) -> Callable[[Mesh, int], Program]:
    """The training step with inputs split so, and the inner channels of the weights split over `weights`."""

    def build(mesh: Mesh, scale: int) -> Program:
        say, draw = parts.annotator(mesh), Draw(1)

        def loss(params: Tree, x: jax.Array, target: jax.Array) -> jax.Array:
            if weights:
                params = params | {"enter": say(params["enter"], None, weights), "leave": say(params["leave"], weights)}
            return jnp.square(forward(params, say(x, *split), by_scan=by_scan) - target).mean()

        shape = 16, 32 * scale, 32 * scale
        return parts.training(loss, init(scale), draw.normal(*shape), draw.normal(*shape))

    return build


MODELS = (
    Model(name="state space, channels split", axes=DATA_BY_MODEL, build=builder("data", weights="model")),
    Model(name="state space, time split", axes=DATA_BY_MODEL, build=builder("data", "model")),
    Model(name="linear recurrence in a scan", axes=DATA_BY_MODEL, build=builder("data", weights="model", by_scan=True)),
)
