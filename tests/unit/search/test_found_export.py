"""A found plan, handed to a stock `jax.jit`: the shardings that were found come out, and one device's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.schedule import ValueType
from hlosharding.search import Plan, SearchResult
from tests.support.training_steps import normal

PAIRS = [(normal(number, 32, 64), normal(number + 9, 64, 32)) for number in range(2)]
MOMENTS = jax.tree.map(jnp.zeros_like, PAIRS)
X = normal(4, 64, 16, 32)


def loss(weights: Any, x: jax.Array) -> jax.Array:
    for up, down in weights:
        x = x + jnp.tanh(x @ up) @ down
    return jnp.mean(x**2)


def step(weights: Any, moments: Any, x: jax.Array) -> Any:
    gradients = jax.grad(loss)(weights, x)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments), moments


def found(plan: str, program: Any = step) -> SearchResult:
    plans = [Plan.parse(plan)]
    return hs.search(program, PAIRS, MOMENTS, X, batch=["x"], machine=machines.h100(8), plans=plans)


ONE_PROGRAM = [
    "8/1/1/1", "2/4/1/1", "8/1/1/1 fsdp", "4/2/1/1 zero1", "2/4/1/1 TD fsdp sequence", "8/1/1/1 fsdp replicas=2",
    "4/2/1/1 context=2",
]  # fmt: skip


@pytest.mark.parametrize("plan", ONE_PROGRAM)
def test_stock_jit_shards_as_found_and_computes_what_one_device_does(plan: str) -> None:
    result = found(plan)
    exported = result.export_plan()
    jitted = jax.jit(step, in_shardings=exported.in_shardings, out_shardings=exported.out_shardings)
    with jax.set_mesh(exported.jax_mesh):
        compiled = jitted.lower(PAIRS, MOMENTS, X).compile()
        made = jitted(PAIRS, MOMENTS, X)
    arguments = _tiles(jax.tree.leaves(compiled.input_shardings[0]), (PAIRS, MOMENTS, X))
    assert arguments == _planned(result)
    results = _tiles([array.sharding for array in jax.tree.leaves(made)], made)
    assert results == arguments[:-1]  # what is updated lies as it did
    for ours, one in zip(jax.tree.leaves(made), jax.tree.leaves(jax.jit(step)(PAIRS, MOMENTS, X)), strict=True):
        np.testing.assert_allclose(ours, one, rtol=1e-5, atol=1e-6)


def _tiles(shardings: Any, arrays: Any) -> list[Any]:
    """Which part of each array each device has."""
    return [
        {device.id: part for device, part in sharding.devices_indices_map(array.shape).items()}
        for sharding, array in zip(shardings, jax.tree.leaves(arrays), strict=True)
    ]


def _planned(result: SearchResult) -> list[Any]:
    """The same, of the parameters of the schedule that was priced."""
    types = (parameter.type for parameter in result.schedule.main.parameters)
    return [_tiles_of(each) for each in types if each is not None]


def _tiles_of(value: ValueType) -> dict[int, tuple[slice, ...]]:
    dims, sharding = value.shape.dims, value.sharding
    if sharding.is_replicated():
        return {device: tuple(slice(None) for _ in dims) for device in value.devices}
    found = dict[int, tuple[slice, ...]]()
    for place, device in enumerate(value.devices):
        ends = zip(sharding.tile_offset(dims, place), sharding.tile_limit(dims, place), dims, strict=True)
        found[device] = tuple(slice(None) if (a, b) == (0, size) else slice(a, b) for a, b, size in ends)
    return found


def test_the_users_own_constraints_give_way_and_that_is_said() -> None:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))

    def constrained(weights: Any, moments: Any, x: jax.Array) -> Any:
        split = [
            (jax.lax.with_sharding_constraint(up, NamedSharding(mesh, P(None, "model"))), down) for up, down in weights
        ]
        return step(split, moments, x)

    module = hs.trace(constrained, mesh=mesh)(PAIRS, MOMENTS, X)
    plans = [Plan(8, strategy="fsdp")]
    result = hs.search(module, batch=["x"], machine=machines.h100(8), plans=plans)
    exported = result.export_plan()
    line = constrained.__code__.co_firstlineno + 2
    assert exported.unsaid == (f"test_found_export.py:{line}: in place of its own constraint P(None, 'model'): none",)
    assert exported.in_specs == found("8/1/1/1 fsdp").export_plan().in_specs


@pytest.mark.parametrize("plan", ["4/1/2/2", "8/1/1/2"])
def test_stages_and_microbatches_are_no_program_of_jit(plan: str) -> None:
    with pytest.raises(
        ScheduleError, match=f"{plan} is no one program of all devices, as jax.jit compiles; run its schedule"
    ):
        found(plan).export_plan()


def scanned(say: Callable[[jax.Array], jax.Array]) -> Callable[..., Any]:
    """Layers in a scan, each computed again in its backward pass; `say`: what a line says of what attention gives."""

    def layer(x: jax.Array, own: Any) -> tuple[jax.Array, None]:
        q, k, v = (jnp.einsum("btd,dhk->bthk", x, own[name]) for name in "qkv")
        scores = jax.nn.softmax(jnp.einsum("bqhk,bthk->bhqt", q, k))
        mixed = jnp.einsum("bhqt,bthk->bqhk", scores, v)
        x = x + say(jnp.einsum("bqhk,hkd->bqd", mixed, own["o"]))
        return x + jnp.tanh(x @ own["up"]) @ own["down"], None

    def loss(weights: Any, tokens: jax.Array) -> jax.Array:
        x = jax.lax.scan(jax.checkpoint(layer), weights["embedding"][tokens], weights["layers"])[0]
        scores = jax.nn.log_softmax(x @ weights["embedding"].T)
        return -jnp.take_along_axis(scores, tokens[..., None], -1).mean()

    def trained(weights: Any, tokens: jax.Array) -> Any:
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, tokens))

    return trained


def test_a_line_is_said_without_which_xla_would_gather_activations() -> None:
    """What keeps the batch split in the program that was priced is no line of the user's: stock XLA has to be told."""
    sizes = dict.fromkeys("qkv", (2, 128, 8, 16)) | {"o": (2, 8, 16, 128), "up": (2, 128, 256), "down": (2, 256, 128)}
    layers = {name: normal(number, *dims) * 0.1 for number, (name, dims) in enumerate(sizes.items())}
    weights, bare = {"embedding": normal(8, 512, 128), "layers": layers}, scanned(lambda x: x)
    tokens = np.random.default_rng(9).integers(0, 512, (16, 64), np.int32)
    plans = [Plan(8, strategy="fsdp")]
    result = hs.search(bare, weights, tokens, batch=["tokens"], machine=machines.h100(8), plans=plans, donate=[0])
    exported = result.export_plan()
    [line] = exported.constraints
    assert (line.expression, line.spec) == ("jnp.einsum('bqhk,hkd->bqd', mixed, own['o'])", P("data"))

    def compiled(function: Any) -> Any:
        edge = {"in_shardings": exported.in_shardings, "out_shardings": exported.out_shardings}
        with jax.set_mesh(exported.jax_mesh):
            return jax.jit(function, **edge).lower(weights, tokens).compile()

    told = scanned(lambda x: jax.lax.with_sharding_constraint(x, line.spec))
    without, found = (exported.compare(compiled(function)) for function in (bare, told))
    assert found.before.flops < 1.01 * found.after.flops < without.before.flops / 1.6
    assert found.before.comm_bytes < without.before.comm_bytes / 2
    with jax.set_mesh(exported.jax_mesh):
        made = compiled(told)(*jax.device_put((weights, tokens), exported.in_shardings))
    for ours, one in zip(jax.tree.leaves(made), jax.tree.leaves(jax.jit(bare)(weights, tokens)), strict=True):
        np.testing.assert_allclose(ours, one, rtol=1e-4, atol=1e-5)
