"""A pipeline as GSPMD's authors write it: stages are a split dim, and each tick of a scan shifts the buffer by one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import Draw, Model, Program, Tree

STAGES, MICROBATCHES = 4, 8


def stage(weights: Tree, x: jax.Array) -> jax.Array:
    """One residual MLP, for each stage at once by vmap."""
    return x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]


def pipelined(params: Tree, microbatches: jax.Array, say: parts.Say) -> jax.Array:
    """[microbatches, size, width] -> the same, through all stages."""
    ticks = MICROBATCHES + STAGES - 1
    params = jax.tree.map(lambda w: say(w, "stage"), params)
    padding = jnp.zeros((STAGES - 1, *microbatches.shape[1:]), microbatches.dtype)

    def tick(buffer: jax.Array, entering: jax.Array) -> tuple[jax.Array, jax.Array]:
        buffer = jnp.roll(buffer, 1, axis=0).at[0].set(entering)
        buffer = say(jax.vmap(stage)(params, say(buffer, "stage", "data")), "stage", "data")
        return buffer, buffer[-1]

    buffer = jnp.zeros((STAGES, *microbatches.shape[1:]), microbatches.dtype)
    _, leaving = jax.lax.scan(tick, buffer, jnp.concatenate([microbatches, padding]), length=ticks)
    return leaving[STAGES - 1 :]


def build(mesh: Mesh, scale: int) -> Program:
    say, draw, width = parts.annotator(mesh), Draw(), 64 * scale
    params = {
        "up": draw.weight(STAGES, width, 4 * width, fan_in=width),
        "down": draw.weight(STAGES, 4 * width, width, fan_in=4 * width),
    }

    def loss(params: Tree, x: jax.Array, target: jax.Array) -> jax.Array:
        return jnp.square(pipelined(params, say(x, None, "data"), say) - target).mean()

    shape = MICROBATCHES, 16, width
    return parts.training(loss, params, draw.normal(*shape), draw.normal(*shape))


MODELS = (Model(name="pipeline in a scan", axes=(("data", 2), ("stage", STAGES)), build=build),)
