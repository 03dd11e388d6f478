"""Training steps cut into D x T x P devices and K microbatches under a schedule, run, and compared with one device.

Each on the first devices that JAX has; D splits the batch, T the weights, P are the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import hlosharding as hs
from hlosharding.ir import Module
from tests.support.relative_error import relative_error

DEVICES = 8
BATCH, WIDTH = 96, 8
"""The batch can be cut into 1 to 4 microbatches, each over 1 to 8 devices."""
SCHEDULES = ("gpipe", "1f1b", "zb-h1", "breadth-first")


class Plan(NamedTuple):
    """How a program is cut."""

    program: str
    data: int
    tensor: int
    stages: int
    microbatches: int
    schedule: str


class Run(NamedTuple):
    """What became of a plan."""

    error: float
    """Of the worst result, relative to its largest number."""
    stages: int
    """With any work to do."""


class Program(NamedTuple):
    """A training step, with the way in which its weights are split."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    specs: tuple[Any, ...]
    """Of each argument, or of its parts: PartitionSpecs over the axes d and t; the last argument is the batch."""


def plans(names: Sequence[str] = ("mlp", "transformer")) -> list[Plan]:
    """All of them on at most eight devices."""
    ways = [(d, t, p) for d, t, p in product((1, 2, 4, 8), repeat=3) if d * t * p <= DEVICES]
    return [Plan(name, *way, k, order) for name, way, k, order in product(names, ways, (1, 2, 3, 4), SCHEDULES)]


def run(plan: Plan) -> Run:
    """The plan's schedule on devices, against one device's step."""
    program, expected = program_named(plan.program), _expected(plan.program)
    schedule = hs.pipelined(
        _traced(plan.program, plan.data, plan.tensor),
        batch=[len(jax.tree.leaves(program.arguments)) - 1],
        stages=plan.stages,
        microbatches=plan.microbatches,
        schedule=plan.schedule,
        devices_per_stage=plan.data * plan.tensor,
    )
    found = schedule.compile()(*jax.tree.leaves(program.arguments))
    errors = [relative_error(a, b) for a, b in zip(found, expected, strict=True)]
    return Run(max(errors), len({device // (plan.data * plan.tensor) for device in schedule.devices}))


@cache
def program_named(name: str) -> Program:
    """Made once."""
    return PROGRAMS[name]()


@cache
def _expected(name: str) -> list[np.ndarray]:
    program = program_named(name)
    return [np.asarray(a) for a in jax.tree.leaves(jax.jit(program.function)(*program.arguments))]


@cache
def _traced(name: str, data: int, tensor: int) -> Module:
    program = program_named(name)
    devices = np.array(jax.devices()[: data * tensor]).reshape(data, tensor)
    mesh = Mesh(devices, ("d", "t"), axis_types=(AxisType.Auto,) * 2)
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), program.specs, is_leaf=lambda x: isinstance(x, PartitionSpec)
    )
    return hs.trace(program.function, in_shardings=shardings)(*program.arguments)


def _numbers() -> Iterator[Any]:
    key = jax.random.PRNGKey(0)
    while True:
        key, own = jax.random.split(key)
        yield own


def mlp() -> Program:
    """Four layers, gradient descent in steps as large as the weights: what is wrong with a gradient shows."""
    keys, split = _numbers(), [PartitionSpec(None, "t"), PartitionSpec("t", None)] * 2

    def loss(weights: Any, batch: Any) -> Any:
        x = batch
        for w in weights:
            x = jnp.tanh(x @ w)
        return ((x - 0.5 * batch) ** 2).sum(-1).mean()

    def step(weights: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, batch)
        return [w - 0.5 * g for w, g in zip(weights, grads, strict=True)], value

    weights = [jax.random.normal(key, (WIDTH, WIDTH)) * 0.4 for key, _ in zip(keys, range(4), strict=False)]
    batch = jax.random.normal(next(keys), (BATCH, WIDTH))
    return Program(step, (weights, batch), (split, PartitionSpec("d")))


def transformer() -> Program:
    """A scan over eight layers between embeddings and the loss, Adam."""
    keys, layers, words, length = _numbers(), 8, 16, 4
    dims = {**dict.fromkeys("qkvo", (WIDTH, WIDTH)), "up": (WIDTH, 2 * WIDTH), "down": (2 * WIDTH, WIDTH)}
    stack = {name: jax.random.normal(next(keys), (layers, *size)) * 0.2 for name, size in dims.items()}
    params = {
        "embed": jax.random.normal(next(keys), (words, WIDTH)),
        "layers": stack,
        "head": jax.random.normal(next(keys), (WIDTH, words)) * 0.4,
    }
    rows, columns = PartitionSpec(None, "t", None), PartitionSpec(None, None, "t")
    split = {
        "embed": PartitionSpec(),
        "layers": {name: rows if name in ("o", "down") else columns for name in dims},
        "head": PartitionSpec(None, "t"),
    }

    def layer(x: Any, own: Any) -> Any:
        q, k, v = (x @ own[name] for name in "qkv")
        seen = jnp.tril(jnp.ones((length, length), bool))
        scores = jnp.where(seen, jnp.einsum("bsd,btd->bst", q, k) / WIDTH**0.5, -1e9)
        x = x + jnp.einsum("bst,btd->bsd", jax.nn.softmax(scores), v) @ own["o"]
        return x + jax.nn.gelu(x @ own["up"]) @ own["down"], None

    def loss(params: Any, tokens: Any) -> Any:
        x, _ = jax.lax.scan(layer, params["embed"][tokens[:, :-1]], params["layers"])
        scores = jax.nn.log_softmax(x @ params["head"])
        return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()

    def step(params: Any, mean: Any, square: Any, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        square = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, square, grads)
        new = jax.tree.map(lambda p, m, v: p - 0.01 * m / (jnp.sqrt(v) + 1e-3), params, mean, square)
        return new, mean, square, value

    zeros = jax.tree.map(jnp.zeros_like, params)
    tokens = jax.random.randint(next(keys), (BATCH, length + 1), 0, words)
    return Program(step, (params, zeros, zeros, tokens), (split, split, split, PartitionSpec("d")))


PROGRAMS: Mapping[str, Callable[[], Program]] = {"mlp": mlp, "transformer": transformer}
