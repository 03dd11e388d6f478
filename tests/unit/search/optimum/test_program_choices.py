"""Choices of small programs, against all there are."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.partitioner import Prices
from hlosharding.search.choices import solve_choices
from hlosharding.search.optimum import ProgramChoices, Weights, program_choices
from hlosharding.sharding import TileAssignment
from tests.support.small_steps import listed, perceptron, scanned

TWO_PRODUCTS = """HloModule m
ENTRY e { x = f32[64,4096] parameter(0)  w = f32[4096,8192] parameter(1)  v = f32[8192,512] parameter(2)
  h = f32[64,8192] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[64,8192] tanh(h)
  ROOT y = f32[64,512] dot(g, v), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
SERIAL = Weights(1.0, 1.0)


def choices_of(text: str, *mesh: int, **options: object) -> ProgramChoices:
    """Of a program on H100s."""
    prices = Prices(machines.h100(math.prod(mesh)))
    return ProgramChoices(hs.load(text), TileAssignment.from_iota(mesh), prices, **options)  # pyright: ignore[reportArgumentType]


def plan_all(choices: ProgramChoices) -> int:
    """So that no price is a bound; how many that were."""
    return choices.table.plan({number for edge in choices.edges for number in edge.reshards.ravel().tolist()})


def test_no_choices_at_all_are_cheaper() -> None:
    choices = choices_of(TWO_PRODUCTS, 2)
    plan_all(choices)
    problem = choices.problem(SERIAL, 80e9)
    every = product(*(range(len(node.compute)) for node in choices.nodes))
    least = min(problem.cost_of(np.array(chosen)) for chosen in every)
    found = solve_choices(problem)
    assert found.cost == pytest.approx(least)
    assert found.is_proven
    assert found.chosen is not None
    assert choices.spent(found.chosen).compute > 0


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_planning_what_answers_need_finds_what_planning_all_does(mesh: tuple[int, ...]) -> None:
    step, arguments = perceptron(256, 1024, 4096, 512)
    text = hs.trace(step)(*arguments).to_hlo_text()
    lazy, eager = choices_of(text, *mesh), choices_of(text, *mesh)
    every, planned = plan_all(eager), 0
    while True:
        found = solve_choices(lazy.problem(SERIAL, 80e9))
        assert found.chosen is not None
        count = lazy.plan_reshards(found.chosen)
        planned += count
        if not count:
            break
    assert found.cost == pytest.approx(solve_choices(eager.problem(SERIAL, 80e9)).cost)
    assert planned < every


def test_bounds_are_below_what_plans_take() -> None:
    step, arguments = perceptron(256, 1024, 4096, 512)
    choices = choices_of(hs.trace(step)(*arguments).to_hlo_text(), 2, 2)
    least = choices.table.seconds
    plan_all(choices)
    assert (least <= choices.table.seconds * (1 + 1e-9)).all()
    assert (least >= 0.5 * choices.table.seconds).mean() > 0.9  # and near


def test_what_readers_share_moves_once() -> None:
    text = """HloModule m
ENTRY e { x = f32[4096,4096] parameter(0), sharding={devices=[4,1]<=[4]}  w = f32[4096,4096] parameter(1)
  a = f32[4096,4096] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[4096,4096] dot(w, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT c = f32[4096,4096] add(a, b) }"""
    choices = choices_of(text, 4)
    plan_all(choices)
    gather = choices.prices.reshard_seconds(
        choices.module.by_name("x").shape,
        hs.HloSharding.parse("{devices=[4,1]<=[4]}"),
        hs.HloSharding.replicate(),
        None,
    )
    found = solve_choices(choices.problem(SERIAL, 80e9))
    assert found.chosen is not None
    assert choices.spent(found.chosen).exposed <= gather * 1.01


def test_annotations_bind() -> None:
    said = TWO_PRODUCTS.replace("parameter(1)", "parameter(1), sharding={devices=[2,1]<=[2]}")
    choices = choices_of(said, 2)
    found = solve_choices(choices.problem(SERIAL, 80e9))
    assert found.chosen is not None
    shardings = choices.shardings(found.chosen)
    assert str(shardings[choices.module.by_name("w")]) == "{devices=[2,1]<=[2]}"


def test_each_trip_of_a_loop_counts() -> None:
    few, many = (
        choices_of(hs.trace(step)(*arguments).to_hlo_text(), 4)
        for step, arguments in (scanned(4, 256, 1024), scanned(16, 256, 1024))
    )
    assert [len(node.compute) for node in few.nodes] == [len(node.compute) for node in many.nodes]
    seconds = [solve_choices(choices.problem(SERIAL, 80e9)).cost for choices in (few, many)]
    assert 3 < seconds[1] / seconds[0] < 4.5


def test_layers_of_a_large_program_are_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    step, arguments = listed(16, 256, 1024)
    text = hs.trace(step)(*arguments).to_hlo_text()
    free = choices_of(text, 4)
    monkeypatch.setattr(program_choices, "_CHOSEN_APART", 100)
    tied = choices_of(text, 4)
    assert len(tied.nodes) < 0.5 * len(free.nodes)
    assert len(tied.edges) < 0.5 * len(free.edges)
    for choices in tied, free:
        plan_all(choices)
    costs = [solve_choices(choices.problem(SERIAL, 80e9)).cost for choices in (tied, free)]
    assert costs[1] * (1 - 1e-6) <= costs[0] <= 1.1 * costs[1]  # the free ones may do whatever the tied ones do


def test_memory_is_that_of_tiles() -> None:
    choices = choices_of(TWO_PRODUCTS, 2)
    weights = 4 * (64 * 4096 + 4096 * 8192 + 8192 * 512)
    problem = choices.problem(SERIAL, 1e9)
    whole = problem.usage_of(np.zeros(problem.num_nodes, np.int64))
    assert weights <= whole.max() <= weights + 4 * 64 * (2 * 8192 + 512)
    tight = choices.problem(SERIAL, 0.6 * weights)
    found = solve_choices(tight)
    assert found.chosen is not None
    assert tight.usage_of(found.chosen).max() <= 0.6 * weights
