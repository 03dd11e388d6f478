"""Training steps of small decoders, written as the published ones: a plan computes what one device does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlosharding as hs
from benchmarks.published.planning import received_bytes
from benchmarks.published.transformer import Config, logits_of, parameters, train_step
from hlosharding.search import Plan, Planner

SMALL = Config(
    layers=4,
    width=32,
    heads=4,
    kv_heads=2,
    vocabulary=64,
    length=16,
    hidden=64,
    gated=True,
    positions="rotary",
    tied=False,
    compute=jnp.float32,
)
BATCH = 16


@dataclass(frozen=True)
class Step:
    """A step, and what it is called with: weights, moments, tokens."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    @cached_property
    def module(self) -> hs.Module:
        return hs.trace(self.function)(*self.arguments)

    @property
    def planner(self) -> Planner:
        """Each time anew: it keeps the programs of its plans, and what XLA made of them."""
        return Planner(self.module, ["tokens"])

    @cached_property
    def expected(self) -> list[Any]:
        """What one device gives."""
        return jax.tree.leaves(jax.jit(self.function)(*self.arguments))

    def check(self, plan: Plan, devices: list[Any]) -> None:
        """A plan gives the same."""
        compiled = self.planner.schedule(plan).compile(devices[: plan.num_devices])
        for ours, theirs in zip(compiled(*jax.tree.leaves(self.arguments)), self.expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)

    def received(self, plan: Plan) -> float:
        """Bytes."""
        return received_bytes(self.planner.pipeline(plan))


@cache
def step_of(config: Config) -> Step:
    """Weights and moments are drawn."""
    random = np.random.default_rng(0)
    weights = jax.tree.map(lambda s: jnp.asarray(random.normal(size=s.shape) * 0.3, s.dtype), parameters(config))
    small = jax.tree.map(lambda leaf: jnp.abs(leaf) * 0.1, weights)
    return Step(partial(train_step, config), (weights, (small, small), drawn_tokens(config)))


@cache
def longer_step_of(config: Config) -> Step:
    """A step of SGD: of sequences that are one longer all tokens but the last are inputs, all but the first labels."""

    def loss(weights: Any, tokens: jax.Array) -> jax.Array:
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        logits = logits_of(config, weights, inputs)
        picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)

    def step(weights: Any, tokens: jax.Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, tokens)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value

    return Step(step, (step_of(config).arguments[0], drawn_tokens(config, config.length + 1)))


def drawn_tokens(config: Config, length: int = 0) -> jax.Array:
    """A batch of sequences."""
    random = np.random.default_rng(1)
    return jnp.asarray(random.integers(0, config.vocabulary, size=(BATCH, length or config.length)), jnp.int32)


def weight_bytes(config: Config) -> int:
    """Of all weights."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(parameters(config)))
