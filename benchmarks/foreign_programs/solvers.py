"""What solves: diffrax, optimistix, ott, evosax, optax."""

from __future__ import annotations

from typing import Any

import diffrax
import evosax.algorithms
import jax
import jax.numpy as jnp
import optax
import optimistix
from jax.sharding import Mesh
from ott.geometry import pointcloud
from ott.problems.linear import linear_problem
from ott.solvers.linear import sinkhorn

from benchmarks.foreign_programs.parts import Step, normal, put, put_fsdp


def neural_ode(mesh: Mesh) -> Step:
    """A batch of trajectories of a perceptron's field, by Tsit5 with adaptive steps, and the field's gradient."""
    weights = put(mesh, [0.1 * normal(0, 16, 64), 0.1 * normal(1, 64, 16)])

    field = diffrax.ODETerm(lambda t, y, w: jnp.tanh(y @ w[0]) @ w[1])
    controller = diffrax.PIDController(rtol=1e-3, atol=1e-4)

    def ends(weights: Any, starts: jax.Array) -> Any:
        options = {"stepsize_controller": controller, "max_steps": 64}
        return diffrax.diffeqsolve(field, diffrax.Tsit5(), 0.0, 1.0, 0.1, starts, weights, **options).ys

    step = jax.value_and_grad(lambda *arguments: jnp.square(ends(*arguments)).mean())
    return Step(step, (weights, put(mesh, normal(2, 512, 16), "data")), ends)


def curve_fit(mesh: Mesh) -> Step:
    """A small perceptron fitted to many points by BFGS, points split."""
    solver = optimistix.BFGS(rtol=1e-4, atol=1e-4)

    def error(weights: Any, points: Any) -> jax.Array:
        return jnp.square(jnp.tanh(points[0] @ weights[0]) @ weights[1] - points[1]).mean()

    def fit(weights: Any, points: Any) -> Any:
        return optimistix.minimise(error, solver, weights, points, max_steps=8, throw=False).value

    points = put(mesh, (normal(0, 2048, 4), normal(1, 2048)), "data")
    return Step(fit, (put(mesh, (0.1 * normal(2, 4, 8), 0.1 * normal(3, 8))), points), fit)


def transport(mesh: Mesh) -> Step:
    """Sinkhorn between two clouds of points, the points of one split over `data`, of the other over `model`."""

    def cost(x: jax.Array, y: jax.Array) -> jax.Array:
        problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=0.1))
        return sinkhorn.Sinkhorn(max_iterations=50)(problem).reg_ot_cost

    x, y = put(mesh, normal(0, 512, 8), "data"), put(mesh, normal(1, 512, 8) + 0.5, "model")
    return Step(jax.value_and_grad(cost), (x, y))


def evolution(mesh: Mesh) -> Step:
    """A generation of CMA-ES, rows of its covariance split; `ask` and `tell` are jitted."""
    algorithm = evosax.algorithms.CMA_ES(population_size=512, solution=jnp.zeros(64))
    key, params = jax.random.key(0), algorithm.default_params
    state = put_fsdp(mesh, algorithm.init(key, jnp.ones(64), params))

    def step(key: jax.Array, state: Any, target: jax.Array) -> Any:
        population, state = algorithm.ask(key, state, params)
        fitness = jnp.square(population - target).sum(-1)
        return algorithm.tell(key, population, fitness, state, params)[0].mean

    return Step(step, (put(mesh, key), state, put(mesh, normal(0, 64))), step)


def muon(mesh: Mesh) -> Step:
    """Optax's Muon, which makes each gradient orthogonal by matrix products, on weights that are split."""
    optimizer = optax.contrib.muon(1e-2)
    weights = put_fsdp(mesh, {f"layer {n}": normal(n, 256, 1024) for n in range(4)})
    gradients = put_fsdp(mesh, {f"layer {n}": normal(8 + n, 256, 1024) for n in range(4)})
    return Step(optimizer.update, (gradients, optimizer.init(weights), weights))
