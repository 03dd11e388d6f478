"""Haiku: functions made pure by `hk.transform_with_state`."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import optax
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, integers, normal, put


def residual(mesh: Mesh) -> Step:
    """Haiku's own ResNet, small, with the means of its batch norms as state; data parallel."""
    sizes = {"blocks_per_group": (1, 1, 1, 1), "channels_per_group": (32, 64, 64, 128), "bottleneck": False}
    net = hk.transform_with_state(lambda x: hk.nets.ResNet(num_classes=16, resnet_v2=True, **sizes)(x, True))
    images, optimizer = normal(0, 32, 32, 32, 3), optax.sgd(0.1, momentum=0.9)
    params, state = net.init(jax.random.key(0), images)

    def loss(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        logits, state = net.apply(params, state, None, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), state

    def step(params: Any, state: Any, momenta: Any, *batch: jax.Array) -> Any:
        (value, state), gradients = jax.value_and_grad(loss, has_aux=True)(params, state, *batch)
        updates, momenta = optimizer.update(gradients, momenta, params)
        return optax.apply_updates(params, updates), state, momenta, value

    batch = put(mesh, (images, integers(1, 16, 32)), "data")
    return Step(step, (*put(mesh, (params, state, optimizer.init(params))), *batch))
