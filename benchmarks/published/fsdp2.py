"""What PyTorch's FSDP2 holds and copies beside a program's values, as torchtitan called it in December 2024.

Sources: `torch/distributed/_composable/fsdp` (2.6), where streams, buffers and groups are, and torchtitan's
`parallelize_llama.py` (9dec370): a group for each layer, and the root's, of embedding, norm and output.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax

from benchmarks.published.transformer import Config, parameters
from hlosharding.search import Plan

_WIDE, _NARROW = 4, 2
"""Bytes of f32 and of bf16."""


class Beside(NamedTuple):
    """Bytes of a device."""

    held: float
    copied: float
    """Read and written by kernels of their own, each step."""


NOTHING = Beside(0.0, 0.0)


def beside(config: Config, plan: Plan, batch: int) -> Beside:
    """Of the device that has most weights, in a step with so many sequences.

    Its allocator lends no memory from one stream to another: what is gathered is received in a stream of its own, into
    a buffer of the largest group's size while the next group's is under way, and what gradients are reduced to, in f32,
    lies in a third.  Gathered are bf16, or float8 where layers compute in that.  The root stays gathered from the
    forward pass to the end, as does the last layer; so does what the output's product reads, over tensor ways.

    With stages all stay gathered, and gradients are whole, in f32, up to the last microbatch: these take the place
    that weights gathered in f32 take in the program here, whose reduced gradients are in the third stream's.
    """
    gathered = 1 if config.float8 else _NARROW
    layer, root = (size / plan.tensor for size in _sizes(config))
    buffers = root * _NARROW + layer * gathered
    layers = math.ceil(config.layers / plan.stages)
    weights = layers * layer + (root if plan.stages == 1 else root / 2)
    if plan.stages > 1:
        return Beside(buffers + weights * gathered, weights * (2 * gathered + 2 * _WIDE))
    reduced = weights / plan.data * _WIDE
    read = batch // plan.data * config.length * config.width * _NARROW if plan.tensor > 1 else 0
    # copied out of what was received, twice, and into what is reduced
    return Beside(2 * buffers + reduced + read, weights * (2 * 2 * gathered + _NARROW + _WIDE))


def _sizes(config: Config) -> tuple[int, int]:
    """Weights of a layer, and of what is around layers."""
    whole = dict(parameters(config))
    layers = sum(leaf.size for leaf in jax.tree.leaves(whole.pop("layers")))
    return layers // config.layers, sum(leaf.size for leaf in jax.tree.leaves(whole))
