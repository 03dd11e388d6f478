"""Flax's Linen: modules whose weights stand beside them."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, integers, normal, put, put_fsdp


def trained(state: TrainState, inputs: Any, labels: Any) -> Any:
    """One step of training a classifier."""

    def loss(params: Any) -> jax.Array:
        logits = state.apply_fn({"params": params}, inputs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    value, gradients = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=gradients), value


class MixerBlock(nn.Module):
    """Mixes tokens, then channels."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = jnp.swapaxes(nn.LayerNorm()(x), 1, 2)
        x = x + jnp.swapaxes(nn.Dense(x.shape[1])(nn.gelu(nn.Dense(128)(y))), 1, 2)
        return x + nn.Dense(x.shape[2])(nn.gelu(nn.Dense(512)(nn.LayerNorm()(x))))


class Mixer(nn.Module):
    """Patches of images, four blocks, a classifier."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Conv(256, (4, 4), strides=(4, 4))(x)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        for _ in range(4):
            x = MixerBlock()(x)
        return nn.Dense(16)(nn.LayerNorm()(x).mean(1))


def mixer(mesh: Mesh) -> Step:
    """Batch and weights split over all devices."""
    model, images = Mixer(), normal(0, 32, 32, 32, 3)
    params = model.init(jax.random.key(0), images)["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.sgd(0.1, momentum=0.9))
    return Step(trained, (put_fsdp(mesh, state), put(mesh, images, "data"), put(mesh, integers(1, 16, 32), "data")))


RULES = (("batch", "data"), ("mlp", "model"), ("heads", "model"), ("vocab", "model"), ("embed", None))


class Layer(nn.Module):
    """Attention and a perceptron, their weights on logical axes."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        named = lambda *axes: nn.with_logical_partitioning(nn.initializers.lecun_normal(), axes)  # noqa: E731
        mask = nn.make_causal_mask(x[..., 0])
        attention = nn.MultiHeadDotProductAttention(8, kernel_init=named("embed", "heads", None), use_bias=False)
        x = x + attention(nn.LayerNorm()(x), mask=mask)
        y = nn.gelu(nn.Dense(1024, kernel_init=named("embed", "mlp"))(nn.LayerNorm()(x)))
        y = nn.with_logical_constraint(y, ("batch", None, "mlp"))
        return x + nn.Dense(x.shape[-1], kernel_init=named("mlp", "embed"))(y)


class LanguageModel(nn.Module):
    """Two layers that predict the next token."""

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        table = nn.with_logical_partitioning(nn.initializers.normal(0.02), ("vocab", "embed"))
        embed = nn.Embed(1024, 256, embedding_init=table)
        x = embed(tokens)
        for _ in range(2):
            x = Layer()(x)
        return embed.attend(nn.LayerNorm()(x))


def transformer(mesh: Mesh) -> Step:
    """Data by tensor parallelism, as logical axes say."""
    model, tokens = LanguageModel(), integers(0, 1024, 16, 65)
    variables = model.init(jax.random.key(0), tokens[:, :-1])
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(variables), mesh, RULES)
    params = jax.device_put(nn.unbox(variables), shardings)["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3, eps=1e-3))

    def step(state: TrainState, tokens: jax.Array) -> Any:
        with nn.logical_axis_rules(RULES), mesh:
            return trained(state, tokens[:, :-1], tokens[:, 1:])

    return Step(step, (state, put(mesh, tokens, "data")))
