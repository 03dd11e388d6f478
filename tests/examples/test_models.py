"""The models of the examples train alike on eight devices and on one under plain `jax.jit`: what ours is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from examples import devices
from examples.models import conv_net, gpt2, nnx_classifier

STEPS = 4
SMALL_GPT2 = gpt2.Config(layers=1, width=32, heads=4, vocabulary=64, context=16, batch=4)
SMALL_CONV = conv_net.Config(channels=(4, 8), image=16, classes=4, batch=4)
SMALL_NNX = nnx_classifier.Config(layers=1, width=32, vocabulary=64, context=16, classes=4, batch=4)


def pytree_losses(model: Any, config: Any, mesh: Mesh, compiler: Callable[..., Any]) -> Iterator[float]:
    """Of a model whose parameters and optimizer are plain pytrees."""
    step = compiler(model.training_step(mesh))
    params = model.init(config)
    optimizer = model.init_optimizer(params)
    for batch in model.batches(config):
        params, optimizer, loss = step(params, optimizer, batch)
        yield float(loss)


def gpt2_losses(mesh: Mesh, compiler: Callable[..., Any] = jax.jit) -> Iterator[float]:
    return pytree_losses(gpt2, SMALL_GPT2, mesh, compiler)


def conv_net_losses(mesh: Mesh, compiler: Callable[..., Any] = jax.jit) -> Iterator[float]:
    return pytree_losses(conv_net, SMALL_CONV, mesh, compiler)


def nnx_losses(mesh: Mesh, compiler: Callable[..., Any] = jax.jit) -> Iterator[float]:
    static, state = nnx_classifier.build(SMALL_NNX, mesh)
    step = compiler(nnx_classifier.training_step(static), **nnx_classifier.jit_options(state, mesh))
    for batch in nnx_classifier.batches(SMALL_NNX):
        state, loss = step(state, *batch)
        yield float(loss)


@pytest.mark.parametrize("losses", [gpt2_losses, conv_net_losses, nnx_losses])
def test_a_model_trains_alike_on_eight_devices_and_on_one(losses: Callable[[Mesh], Iterator[float]]) -> None:
    many = list(islice(losses(devices.data_by_model()), STEPS))
    one = list(islice(losses(devices.one_device()), STEPS))
    np.testing.assert_allclose(many, one, rtol=1e-4)
    assert len(set(one)) == STEPS, "the loss does not move"


def test_abstract_arguments_are_those_of_the_real_run() -> None:
    params = gpt2.init(SMALL_GPT2)
    real = (params, gpt2.init_optimizer(params), next(gpt2.batches(SMALL_GPT2)))
    shapes = gpt2.abstract_arguments(SMALL_GPT2)
    assert jax.tree.structure(real) == jax.tree.structure(shapes)
    assert [x.shape for x in jax.tree.leaves(real)] == [x.shape for x in jax.tree.leaves(shapes)]
