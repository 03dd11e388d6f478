"""Worlds and games: jax-md, brax, mctx, rlax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax_md
import mctx
import rlax
from brax import envs
from jax.sharding import Mesh

from benchmarks.foreign_programs.parts import Step, integers, normal, put


def molecules(mesh: Mesh) -> Step:
    """Ten steps at constant energy of particles that repel each other, particles split."""
    displacement, shift = jax_md.space.periodic(10.0)
    init, apply = jax_md.simulate.nve(jax_md.energy.soft_sphere_pair(displacement), shift, dt=1e-3)
    places = put(mesh, jnp.mod(normal(0, 512, 3) * 3, 10.0), "data")
    state = init(jax.random.key(0), places, kT=0.1)

    def step(state: Any) -> Any:
        state = jax.lax.fori_loop(0, 10, lambda _, s: apply(s), state)
        return state.position, state.momentum

    return Step(step, (state,))


def robots(mesh: Mesh) -> Step:
    """Two steps of many cheetahs, cheetahs split."""
    env = envs.get_environment("halfcheetah", backend="spring")
    states = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 64))

    def step(states: Any, actions: jax.Array) -> Any:
        states, _ = jax.lax.scan(lambda s, a: (jax.vmap(env.step)(s, a), None), states, actions)
        return states.obs, states.reward

    return Step(step, (put(mesh, states, "data"), put(mesh, 0.1 * normal(0, 2, 64, env.action_size), None, "data")))


def tree_search(mesh: Mesh) -> Step:
    """Gumbel MuZero's search with a model that is a perceptron; the batch split."""
    weights = put(mesh, {"move": normal(0, 4, 32, 32), "policy": normal(1, 32, 4), "value": normal(2, 32)})

    def recurrent(weights: Any, _key: jax.Array, action: jax.Array, embedding: jax.Array) -> Any:
        after = jnp.tanh(jnp.einsum("bi,bij->bj", embedding, weights["move"][action]))
        value = after @ weights["value"]
        step = {"reward": after[:, 0], "discount": jnp.full_like(value, 0.9), "value": value}
        return mctx.RecurrentFnOutput(**step, prior_logits=after @ weights["policy"]), after

    def step(weights: Any, key: jax.Array, x: jax.Array) -> Any:
        root = mctx.RootFnOutput(prior_logits=x @ weights["policy"], value=x @ weights["value"], embedding=x)
        found = mctx.gumbel_muzero_policy(weights, key, root, recurrent, num_simulations=16)
        return found.action, found.action_weights

    return Step(step, (weights, put(mesh, jax.random.key(0)), put(mesh, normal(3, 64, 32), "data")))


def value_learning(mesh: Mesh) -> Step:
    """Gradient of a V-trace actor-critic loss, the batch split."""
    weights = put(
        mesh, {"hidden": 0.1 * normal(0, 64, 256), "policy": 0.1 * normal(1, 256, 8), "value": normal(2, 256)}
    )

    def loss(weights: Any, seen: jax.Array, actions: jax.Array, rewards: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(seen @ weights["hidden"])
        logits, values = hidden @ weights["policy"], 0.01 * hidden @ weights["value"]
        ratios = jnp.ones_like(rewards)
        found = jax.vmap(rlax.vtrace_td_error_and_advantage)(values, values, rewards, 0.9 * ratios, ratios)
        weigh = jnp.ones_like(rewards)
        policy = jax.vmap(rlax.policy_gradient_loss)(logits, actions, found.pg_advantage, weigh)
        return policy.mean() + jnp.square(found.errors).mean()

    batch = put(mesh, (normal(3, 64, 32, 64), integers(4, 8, 64, 32), normal(5, 64, 32)), "data")
    return Step(jax.value_and_grad(loss), (weights, *batch))
