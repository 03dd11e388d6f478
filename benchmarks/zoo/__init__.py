"""A zoo of models in plain JAX, each with its sharding plan: what bytes, FLOPs, memory and results are compared on.

One file a family; `MODELS` lists all.  Knows JAX only: every annotation is one that a user of `jax.jit` would write,
and on a mesh of one device it means nothing.
"""

from __future__ import annotations

from benchmarks.zoo import (
    beam_search,
    conditional,
    dlrm,
    fourier,
    gaussian_process,
    gradient_accumulation,
    graph_net,
    mixture_of_experts,
    pipeline,
    recurrent,
    resnet,
    state_space,
    t5,
    transformer,
    unet,
    vit,
)
from benchmarks.zoo.parts import Model, Program

MODELS: tuple[Model, ...] = (
    *transformer.MODELS,
    *mixture_of_experts.MODELS,
    *t5.MODELS,
    *vit.MODELS,
    *resnet.MODELS,
    *unet.MODELS,
    *dlrm.MODELS,
    *state_space.MODELS,
    *beam_search.MODELS,
    *fourier.MODELS,
    *gaussian_process.MODELS,
    *pipeline.MODELS,
    *gradient_accumulation.MODELS,
    *recurrent.MODELS,
    *conditional.MODELS,
    *graph_net.MODELS,
)

__all__ = ["MODELS", "Model", "Program"]
