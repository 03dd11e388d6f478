"""Plans that say the layers of their stages: what they run, and the best of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from benchmarks.published.planning import planner_of
from benchmarks.published.transformer import Config
from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.plans import PlanFile
from hlosharding.search import InterOp, Plan, Planner, plan_files
from hlosharding.search.stages import LayerPrices, divide_plan
from tests.support.training_steps import normal, perceptron, trained

ROWS = normal(1, 16, 8)
STACK = normal(2, 8, 8, 8)
UNIFORM = Config(
    layers=8, width=4096, heads=32, vocabulary=64, length=2048, hidden=16384, gated=True, positions="rotary", tied=False
)
"""Next to its layers nothing else takes time."""
HEAVY_ENDS = replace(UNIFORM, vocabulary=131072)


def scanned(stack: Any, rows: Any) -> Any:
    return trained(lambda w, x: jnp.mean(jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0] ** 2))(stack, rows)


@pytest.mark.parametrize(("step", "weights"), [(scanned, STACK), (perceptron, list(STACK))], ids=["scanned", "listed"])
@pytest.mark.parametrize(
    "plan",
    ["2/1/2/4 layers=5+3", "1/2/3/2 layers=1+6+1", "1/1/4/2 zb-h1 layers=3+1+2+2", "1/2/2/2 1f1b-x2 layers=1+4+2+1"],
)
def test_stages_have_the_layers_that_are_said_and_compute_what_one_device_does(
    plan: str, step: Any, weights: Any
) -> None:
    made, planner = Plan.parse(plan), Planner(hs.trace(step)(weights, ROWS), ["x" if step is perceptron else "rows"])
    schedule = planner.schedule(made, machines.h100(8))
    expected = jax.tree.leaves(jax.jit(step)(weights, ROWS))
    for ours, theirs in zip(schedule.compile()(*jax.tree.leaves((weights, ROWS))), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    by_stage = dict.fromkeys(made.submeshes, 0)
    for kind in [parameter.type for parameter in schedule.main.parameters[:-1]]:
        assert kind is not None
        by_stage[kind.devices] += kind.shape.size // 64
    own = [sum(made.layers[stage :: made.stages]) for stage in range(made.stages)]
    assert list(by_stage.values()) == own


def test_what_no_stages_have_is_refused() -> None:
    with pytest.raises(ScheduleError, match=r"layers of 3 stages \(1, 2, 3\) for 2; give each stage"):
        Plan(1, 1, 2, 2, layers=(1, 2, 3))
    planner = Planner(hs.trace(scanned)(STACK, ROWS), ["rows"])
    with pytest.raises(ScheduleError, match=r"8 layers \(%while.*\) for 9 stages"):
        planner.schedule(Plan(1, 1, 2, 2, layers=(8, 1)))
    planner = Planner(hs.trace(perceptron)(list(STACK), ROWS), ["x"])
    with pytest.raises(ScheduleError, match="ops of a microbatch's forward pass for 1000000000 stages"):
        planner.schedule(Plan(1, 1, 2, 2, layers=(999999999, 1)))


def test_a_file_keeps_them() -> None:
    planner, plan = Planner(hs.trace(scanned)(STACK, ROWS), ["rows"]), Plan(2, 1, 2, 4, strategy="fsdp", layers=(5, 3))
    text = plan_files.plan_file(planner, plan, machines.h100(4)).to_text()
    assert "layers = [\n    5,\n    3,\n]" in text
    assert plan_files.plan_of(PlanFile.parse(text)) == plan
    schedule = plan_files.schedule_of(PlanFile.parse(text), hs.trace(scanned)(STACK, ROWS))
    stacks = [parameter.type for parameter in schedule.main.parameters]
    assert [kind.shape.dims[0] for kind in stacks if kind is not None] == [5, 3, 16]


@pytest.mark.parametrize("config", [UNIFORM, UNIFORM.listed()], ids=["scanned", "listed"])
def test_layers_priced_alone_add_up_to_the_program(config: Config) -> None:
    """All on one device; what a step takes once is a hundredth of its passes."""
    planner, plan, machine = planner_of(config, 64), Plan(1, 1, 2, 8), machines.h100(2)
    figures, _ = LayerPrices(planner, machine).of(plan)
    alone = planner.schedule(Plan(1, 1, 1, 8), machine).simulate(machine)
    assert 8 * figures["seconds"].sum() + figures["once"].sum() == pytest.approx(alone.time_s, rel=0.02)
    assert figures["kept"].sum() + figures["scratch"].max() == pytest.approx(alone.peak_memory_bytes, rel=0.1)


@pytest.mark.parametrize("plan", ["4/1/2/16 zero1", "8/1/1/8 zero1", "1/1/8/64 zero1"])
def test_layers_on_more_data_ways_are_told_from_those_on_few(plan: str) -> None:
    """From two data ways, within 3 %, as if they had been cut themselves."""
    planner, made, machine = planner_of(UNIFORM, 64), Plan.parse(plan), machines.h100(8)
    prices = LayerPrices(planner, machine)
    prices.of(Plan.parse("2/1/4/32 zero1"))
    told, cut = prices.of(made), LayerPrices(planner, machine).of(made)
    for name in ("seconds", "kept", "held"):
        assert told[0][name].sum() == pytest.approx(cut[0][name].sum(), rel=0.03), name
    assert told[1].sum() == pytest.approx(cut[1].sum())


def test_plans_without_stages_are_told_not_to_fit() -> None:
    """Where nothing is computed again, most of the peak is what the backward pass reads."""
    planner, whole, machine = planner_of(replace(UNIFORM, remat="none"), 64), Plan(8, strategy="fsdp"), machines.h100(8)
    peak = planner.schedule(whole, machine).simulate(machine).peak_memory_bytes
    for share, may_hold in ((0.25, False), (1.0, True)):
        prices = LayerPrices(planner, replace(machine, memory_bytes=share * peak))
        assert prices.may_hold(whole)  # as long as no layer is known
        prices.of(Plan(2, 1, 4, 32, strategy="zero1"))
        assert prices.may_hold(whole) == may_hold


@pytest.mark.parametrize("trips", [4, 6, 8])
def test_each_trip_of_a_loop_is_a_layer(trips: int) -> None:
    planner = Planner(hs.trace(scanned)(STACK[:trips], ROWS), ["rows"])
    figures, transfers = LayerPrices(planner, machines.h100(4)).of(Plan(1, 1, 4, 4))
    assert {figure.shape for figure in figures.values()} == {(trips,)}
    assert transfers.shape == (4, trips)
    assert (transfers > 0).tolist() == [[False] * trips, *[[False, *[True] * (trips - 1)]] * 3]


@pytest.mark.parametrize("config", [HEAVY_ENDS, HEAVY_ENDS.listed()], ids=["scanned", "listed"])
def test_a_stage_with_the_vocabulary_has_fewer_layers(config: Config) -> None:
    planner, plan, machine = planner_of(config, 64), Plan(1, 1, 4, 16), machines.h100(4)
    found = divide_plan(LayerPrices(planner, machine), plan)
    assert found is not None
    assert not found.plan.even or found.plan.layers[-1] < max(found.plan.layers)  # else parts that take equal time
    taken = {each: planner.schedule(each, machine).simulate(machine).time_s for each in (plan, found.plan)}
    assert taken[found.plan] <= 1.005 * taken[plan]
    assert found.seconds == pytest.approx(taken[found.plan], rel=0.05)


def test_where_memory_is_short_the_first_stage_has_fewer() -> None:
    """The first of four stages holds four microbatches, the last one."""
    planner, plan, machine = planner_of(replace(UNIFORM, remat="none"), 64), Plan(1, 1, 4, 64), machines.h100(4)
    peak = planner.schedule(plan, machine).simulate(machine).peak_memory_bytes
    short = replace(machine, memory_bytes=0.9 * peak)
    found = divide_plan(LayerPrices(planner, short), plan)
    assert found is not None
    assert found.plan.layers[0] < found.plan.layers[-1]
    assert planner.schedule(found.plan, short).simulate(short).fits
    assert divide_plan(LayerPrices(planner, replace(machine, memory_bytes=peak / 10)), plan) is None


def test_a_searcher_of_its_own() -> None:
    shapes = jax.eval_shape(lambda: (jnp.ones((16, 2048, 2048)), jnp.ones((512, 2048))))
    found = hs.search(scanned, *shapes, searcher=InterOp(most=3), machine=machines.h100(4), progress=False)
    cut = [priced for priced in found.table if priced.plan.stages > 1]
    divided = {priced.plan for priced in cut if priced.plan.even}
    assert len(divided) == 3
    assert all(sum(plan.layers) in (0, 16) for plan in divided)
    by_time = {replace(plan, layers=(), even=False) for plan in divided}
    assert {priced.plan for priced in cut} - divided == by_time | {replace(p, schedule="1f1b-x2") for p in by_time}
    assert {priced.plan.num_devices for priced in found.table} == {4}
    with pytest.raises(ScheduleError, match="a searcher that chooses plans by itself"):
        hs.search(scanned, *shapes, plans=[Plan(4)], searcher=InterOp(), machine=machines.h100(4))


def test_a_searcher_says_what_has_too_few_layers() -> None:
    found = hs.search(scanned, STACK[:2], ROWS, searcher=InterOp(rounds=(1,)), machine=machines.h100(4), progress=False)
    assert found.best.num_devices == 4
    assert "1/1/4/4 zero1" in [str(each.plan) for each, why in found.refused if "2 layers" in why]
