"""Samplers and inference: numpyro, blackjax, tinygp."""

from __future__ import annotations

from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
import tinygp
from jax.sharding import Mesh
from numpyro import infer
from numpyro.infer import autoguide

from benchmarks.foreign_programs.parts import Step, integers, normal, put


def logistic(features: Any, labels: Any) -> None:
    """A numpyro model: regression with a scale of its own."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(features.shape[1]), scale).to_event(1))
    with numpyro.plate("data", len(features)):
        numpyro.sample("labels", dist.Bernoulli(logits=features @ weights), obs=labels)


def svi(mesh: Mesh) -> Step:
    """Ten steps of stochastic variational inference, data split."""
    data = put(mesh, (normal(0, 4096, 64), integers(1, 2, 4096)), "data")
    inference = infer.SVI(logistic, autoguide.AutoNormal(logistic), optax.adam(1e-2), infer.Trace_ELBO())
    state = put(mesh, inference.init(jax.random.key(0), *data))

    def step(state: Any, *data: jax.Array) -> Any:
        return jax.lax.scan(lambda now, _: inference.update(now, *data), state, length=10)

    return Step(step, (state, *data))


def numpyro_nuts(mesh: Mesh) -> Step:
    """Samples by NUTS, data split; `MCMC.run` jits its own loops."""
    data = put(mesh, (normal(0, 2048, 16), integers(1, 2, 2048)), "data")
    kernel = infer.NUTS(logistic, step_size=0.02, max_tree_depth=4)
    state = put(mesh, kernel.init(jax.random.key(0), 0, None, data, {}))

    sampler = infer.MCMC(kernel, num_warmup=2, num_samples=3, progress_bar=False, jit_model_args=True)

    def run(_state: Any, *data: jax.Array) -> Any:
        sampler.run(jax.random.key(0), *data)
        return sampler.get_samples()

    def step(state: Any, *data: jax.Array) -> Any:
        state = kernel.sample(state, data, {})
        return state.z, state.potential_energy, state.num_steps

    return Step(step, (state, *data), run)


def blackjax_nuts(mesh: Mesh) -> Step:
    """Three steps of NUTS on a regression whose data is split."""
    features, labels = put(mesh, (normal(0, 2048, 16), normal(1, 2048)), "data")

    def density(weights: jax.Array, features: jax.Array, labels: jax.Array) -> jax.Array:
        return -0.5 * jnp.square(features @ weights - labels).sum() - 0.5 * jnp.square(weights).sum()

    def step(weights: jax.Array, keys: jax.Array, *data: jax.Array) -> Any:
        sampler = blackjax.nuts(lambda w: density(w, *data), 5e-3, jnp.ones(16), max_num_doublings=4)
        states, info = jax.lax.scan(lambda s, k: sampler.step(k, s), sampler.init(weights), keys)
        return states.position, info.num_integration_steps

    keys = jax.random.split(jax.random.key(0), 3)
    return Step(step, (*put(mesh, (jnp.zeros(16), keys)), features, labels))


def gaussian_process(mesh: Mesh) -> Step:
    """Evidence of a Gaussian process and its gradient, rows of the points split."""
    points = put(mesh, normal(0, 256, 4), "data")
    values = put(mesh, normal(1, 256), "data")

    def evidence(params: Any, points: jax.Array, values: jax.Array) -> jax.Array:
        kernel = jnp.exp(params["amplitude"]) * tinygp.kernels.Matern32(jnp.exp(params["scale"]))
        return -tinygp.GaussianProcess(kernel, points, diag=0.1).log_probability(values)

    params = put(mesh, {"amplitude": jnp.zeros(()), "scale": jnp.zeros(())})
    return Step(jax.value_and_grad(evidence), (params, points, values), evidence)
