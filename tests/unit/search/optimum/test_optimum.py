"""Optima of small steps: checked by partitioning them, by what single placements give, and by running them."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from benchmarks.zoo import MODELS
from benchmarks.zoo_optima import unannotated, written_by_hand
from hlosharding.cost import machines
from hlosharding.errors import ScheduleError, ShardingError
from hlosharding.partitioner import even_placements
from hlosharding.search.choices import Choices
from hlosharding.search.optimum import OptimumOf, find_optimum
from hlosharding.sharding import MeshInfo, TileAssignment
from tests.support.small_steps import Step, descend, floats, masked, perceptron, scanned

optimum = import_module("hlosharding.search.optimum.optimum")
"""The module: the package has a function of this name."""
FOUR = MeshInfo(("x",), (4,))
BATCH = {2, 3}


@pytest.mark.parametrize("dims", [(64, 4096, 16384, 4096), (1024, 8192, 64, 8192)])
def test_the_program_takes_what_was_predicted(dims: tuple[int, ...]) -> None:
    step, arguments = perceptron(*dims)
    best = find_optimum(hs.trace(step)(*arguments), machines.h100(4), FOUR, batch=BATCH)
    report = hs.cost(best.partitioned.module, machine=best.machine)
    assert report.time_s == pytest.approx(best.spent.compute + best.spent.exposed + best.spent.hidden, rel=0.01)
    assert best.bound_s <= best.spent.least * (1 + 1e-9)


def test_products_that_fill_a_step_take_what_was_predicted() -> None:
    """The chip's power does not sustain them all: a tenth of the rate."""
    step, arguments = perceptron(65536, 4096, 4096, 4096)
    best = find_optimum(hs.trace(step)(*arguments), machines.h100(4), FOUR, batch=BATCH)
    assert best.spent.compute == pytest.approx(best.simulation.compute_s, rel=0.005)
    assert best.spent.compute == pytest.approx(best.time_s, rel=0.05)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_kernels_are_those_that_the_partitioner_leaves(platform: str) -> None:
    step, arguments = masked(64, 1024, 512)
    text = hs.trace(step, platform=platform)(*arguments).to_hlo_text()
    best = find_optimum(hs.load(text), machines.h100(8), MeshInfo(("x",), (8,)), batch={5})
    assert best.spent.compute == pytest.approx(best.simulation.compute_s, rel=0.01)


@pytest.mark.parametrize("name", ["transformer, data", "accumulation in a scan, data", "Gaussian processes, batch"])
def test_no_plan_written_by_hand_is_faster(name: str) -> None:
    """Of those that are as fast as what first sums of prices found, or faster."""
    [model] = [model for model in MODELS if model.name == name]
    machine = machines.h100(8)
    by_hand = hs.simulate(written_by_hand(model, 2).module, machine).time_s
    assert find_optimum(unannotated(model, 2), machine, dict(model.axes)).time_s <= by_hand * (1 + 1e-9)


@pytest.mark.parametrize("dims", [(8192, 512, 256)])
def test_no_placement_on_two_axes_is_faster(dims: tuple[int, int, int]) -> None:
    rows, inside, outside = dims
    step = descend(lambda w, x: jnp.sum(jnp.tanh(x @ w) ** 2))
    module, machine = hs.trace(step)(floats(inside, outside), floats(rows, inside)), machines.h100(4)
    parameters, mesh = module.entry.parameters, TileAssignment.from_iota((2, 2))
    least = np.inf
    for places in product(*(even_placements(p.shape.dims, mesh) for p in parameters)):
        said = {p.name: place for p, place in zip(parameters, places, strict=True)}
        placed = hs.partition(hs.annotate(module, said), num_partitions=4, machine=machine)
        least = min(least, hs.simulate(placed.module, machine).time_s)
    best = find_optimum(module, machine, MeshInfo(("x", "y"), (2, 2)), batch={1})
    assert best.improved().time_s <= least * (1 + 1e-9)


@pytest.mark.parametrize("dims", [(64, 4096, 16384, 4096), (1024, 8192, 64, 8192)])
def test_no_placement_of_the_arguments_is_faster(dims: tuple[int, ...]) -> None:
    step, arguments = perceptron(*dims)
    module, machine = hs.trace(step)(*arguments), machines.h100(4)
    parameters, mesh = module.entry.parameters, TileAssignment.from_iota((4,))
    least = np.inf
    for places in product(*(even_placements(p.shape.dims, mesh) for p in parameters)):
        said = {p.name: place for p, place in zip(parameters, places, strict=True)}
        placed = hs.partition(hs.annotate(module, said), num_partitions=4, machine=machine)
        least = min(least, hs.simulate(placed.module, machine).time_s)
    assert find_optimum(module, machine, FOUR, batch=BATCH).time_s <= least * (1 + 1e-9)


@pytest.mark.parametrize("model", [perceptron(16, 8, 32, 8), scanned(4, 16, 8)])
@pytest.mark.parametrize("sizes", [(4,), (2, 2)])
def test_what_was_found_computes_the_same(model: Step, sizes: tuple[int, ...]) -> None:
    step, arguments = model
    module = hs.trace(step)(*arguments)
    best = find_optimum(module, machines.h100(4), MeshInfo(("x", "y")[: len(sizes)], sizes), batch={2, 3})
    random = np.random.default_rng(0)
    arrays: Any = jax.tree.map(lambda a: random.standard_normal(a.shape).astype(a.dtype), arguments)
    expected = jax.tree.leaves(step(*arrays))
    found = jax.tree.leaves(best.partitioned.run_reference(*jax.tree.leaves(arrays)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_split() -> None:
    step, arguments = perceptron(8192, 4096, 4096, 4096)
    module, machine = hs.trace(step)(*arguments), machines.h100(4)
    free = find_optimum(module, machine, FOUR, batch=BATCH)
    needed = free.simulation.peak_memory_bytes
    tight = find_optimum(module, replace(machine, memory_bytes=0.8 * needed), FOUR, batch=BATCH)
    assert tight.fits
    assert tight.simulation.peak_memory_bytes <= 0.8 * needed
    assert tight.time_s >= free.time_s


def test_out_of_time_the_batch_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "solve_choices", lambda *_: Choices(None, np.inf, -np.inf))
    step, arguments = perceptron(65536, 1024, 1024, 1024)
    module, machine = hs.trace(step)(*arguments), machines.h100(4)
    best = find_optimum(module, machine, FOUR, batch=BATCH)
    rows = {p.parameter_number: best.shardings[p].tile_shape(p.shape.dims)[0] for p in module.entry.parameters}
    assert rows == {0: 1024, 1: 1024, 2: 65536 // 4, 3: 65536 // 4}
    small = replace(machine, memory_bytes=1e6)
    with pytest.raises(ScheduleError, match="were found in 120 seconds"):
        find_optimum(module, small, FOUR, batch=BATCH)


def test_nothing_fits() -> None:
    step, arguments = perceptron(16384, 1024, 1024, 1024)
    machine = replace(machines.h100(4), memory_bytes=1e6)
    with pytest.raises(ScheduleError, match="no shardings of its values let the step fit"):
        find_optimum(hs.trace(step)(*arguments), machine, FOUR)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ({"x": 2}, ScheduleError, "a mesh of 2 devices, and 256 of h100"),
        (dict.fromkeys("abcdefgh", 2), ShardingError, "more than 2048 ways .* take a mesh of fewer axes"),
    ],
)
def test_a_mesh_that_does_not_suit(sizes: dict[str, int], error: type[Exception], message: str) -> None:
    step, arguments = perceptron(1024, 1024, 1024, 1024)
    with pytest.raises(error, match=message):
        find_optimum(hs.trace(step)(*arguments), machines.h100(256), sizes)


def test_a_search_takes_it_for_a_strategy() -> None:
    step, arguments = perceptron(64, 4096, 16384, 4096)
    options: Any = {"machine": machines.h100(4), "batch": ["batch"], "donate": [0]}
    found = hs.search(step, *arguments, plans=[hs.Plan(4, strategy="optimum"), hs.Plan(4)], **options)
    assert found.best.strategy == "optimum"
    megatron = hs.search(step, *arguments, plans=[hs.Plan(1, 4)], **options)
    assert found.table[0].time_s <= megatron.table[0].time_s * (1 + 1e-9)


def test_one_device_has_nothing_to_choose() -> None:
    step, arguments = perceptron(64, 16, 32, 8)
    assert OptimumOf(machines.h100(1))(hs.trace(step)(*arguments), {"data": 1}, frozenset({2, 3})) == {}


@pytest.mark.parametrize(
    "body",
    ["ROOT t = () tuple()", "ROOT c = f32[] constant(1)", "ROOT x = f32[8,4] parameter(0)"],
    ids=["nothing", "a number", "what was given"],
)
def test_a_program_that_computes_nothing_has_nothing_to_choose(body: str) -> None:
    best = find_optimum(hs.load(f"HloModule m\nENTRY e {{ {body} }}"), machines.h100(4), FOUR)
    assert best.fits
    assert 0 <= best.gap <= 1
    assert all(sharding.is_replicated() for sharding in best.said.values())


def test_annotations_of_arguments_bind_whose_moments_start_from_one_zero() -> None:
    def train(up: jax.Array, down: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any, rows: jax.Array) -> tuple[Any, None]:
            up, down, first, second = carry
            first = 0.9 * first + rows.T @ jnp.tanh(rows @ up)
            second = 0.9 * second + jnp.tanh(rows @ up).T @ rows
            return (up - first, down - second, first, second), None

        zero = jnp.zeros((64, 64))
        return jax.lax.scan(step, (up, down, zero, zero), rows)[0][:2]

    square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    columns, rows = hs.HloSharding.parse("{devices=[1,4]<=[4]}"), hs.HloSharding.parse("{devices=[4,1]<=[4]}")
    traced = hs.trace(train, in_shardings=(columns, rows, None))
    module = traced(square, square, jax.ShapeDtypeStruct((3, 32, 64), jnp.float32))
    best = find_optimum(module, hs.machines.h100(4), {"x": 4})
    assert [best.shardings[parameter] for parameter in module.entry.parameters[:2]] == [columns, rows]
