"""The models that Alpa was measured on: as large as they are called, and experts as each token asks for them."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.alpa_plans import CASES, GPT
from benchmarks.published import gshard, wide_resnet


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.family is not GPT])
def test_weights_are_as_many_as_the_name_says(name: str) -> None:
    case = CASES[name]
    weights, *_ = case.family.arguments(case.config, case.batch)
    number, unit = float(name.split()[1][:-1]), {"M": 1e6, "B": 1e9}[name[-1]]
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(weights)) == pytest.approx(number * unit, rel=0.06)


def test_each_token_gets_what_its_two_experts_make() -> None:
    """With slots for all: token by token."""
    config = gshard.MoeConfig(layers=2, width=8, experts=4, heads=2, vocabulary=16, length=4, group=8)
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = {"router": (8, 4), "up": (4, 8, 16), "down": (4, 16, 8)}
    weights = {name: jax.random.normal(key, dims) for key, (name, dims) in zip(keys, shapes.items(), strict=False)}
    x = jax.random.normal(keys[3], (2, 4, 8))
    roomy = RoomyConfig(**vars(config))
    found = gshard.experts(roomy, weights, x).reshape(8, 8)
    for token, made in zip(x.reshape(8, 8), found, strict=True):
        shares = jax.nn.softmax(token @ weights["router"])
        chosen = np.argsort(shares)[-2:]
        own = [shares[e] * (jax.nn.relu(token @ weights["up"][e]) @ weights["down"][e]) for e in chosen]
        np.testing.assert_allclose(made, sum(own), rtol=1e-4, atol=1e-5)


class RoomyConfig(gshard.MoeConfig):
    """No token is left out."""

    @property
    def slots(self) -> int:
        return self.group


def test_images_of_other_groups_change_no_image() -> None:
    """Statistics are of a group, so a step is the same for each number of microbatches."""
    config = wide_resnet.ResNetConfig(channels=4, factor=1, pixels=32)
    weights = wide_resnet.arguments(config, 4)[0]["stem"]
    drawn = jax.tree.map(lambda leaf: jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), weights)
    images = jax.random.normal(jax.random.key(1), (4, 32, 32, 3))
    halves = [wide_resnet.normed(config, drawn, images[half], 2) for half in (slice(0, 2), slice(2, 4))]
    np.testing.assert_allclose(wide_resnet.normed(config, drawn, images, 2), jnp.concatenate(halves), atol=1e-4)
