"""A zoo of models in plain JAX, each with its sharding plan: what bytes, FLOPs, memory and results are compared on.

One file a family; `MODELS` lists all.  Knows JAX only: every annotation is one that a user of `jax.jit` would write, and
on a mesh of one device it means nothing.
"""

from __future__ import annotations

from benchmarks.zoo import (
    mixture_of_experts,
    transformer,
)
from benchmarks.zoo.parts import Model, Program

MODELS: tuple[Model, ...] = (
    *transformer.MODELS,
    *mixture_of_experts.MODELS,
)

__all__ = ["MODELS", "Model", "Program"]
