"""What is told from two cuts is what a cut of its own gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.ir import Between, NotResizable, ResizableModule
from hlosharding.schedule import Pipeline, PipelineRuns
from hlosharding.search import Plan, SizedPlan
from hlosharding.search.batch_sizes import BatchSizes
from hlosharding.search.plan_prices import PlanPrices
from tests.support.training_steps import STEPS

MACHINE = machines.dgx2_v100(8)


def mlp_sizes(width: int = 256) -> BatchSizes:
    """Layers so wide that arithmetic counts."""
    step, shape = STEPS["mlp"](), jax.ShapeDtypeStruct
    return BatchSizes(
        step.function, ([shape((width, width), jnp.float32)] * 4, shape((64, width), jnp.float32)), step.batch
    )


def check(sizes: BatchSizes, plan: Plan, batch_sizes: Sequence[int]) -> None:
    """Prices are those of each plan's own cut."""
    counts = (2, 4, 8) if plan.stages > 1 else (1,)
    every = [SizedPlan(replace(plan, microbatches=count), size) for count in counts for size in batch_sizes]
    prices, runs = PlanPrices(sizes, every, MACHINE), PipelineRuns(MACHINE)
    for each in every:
        found, cut = prices.simulate(each), prices.cut(each)
        expected = runs.simulate(cut, cut.usual_order, each.plan.microbatches)
        assert found.time_s == pytest.approx(expected.time_s, rel=1e-6)
        assert found.peak_memory_bytes == expected.peak_memory_bytes
        for ours, theirs in zip(found.usage, expected.usage, strict=True):
            assert astuple(ours.breakdown) == pytest.approx(
                astuple(theirs.breakdown), rel=1e-6, abs=1e-9 * found.time_s
            )
            assert ours.peak_bytes == pytest.approx(theirs.peak_bytes, rel=1e-6)


@pytest.mark.parametrize("plan", [Plan(2, 2, 2), Plan(4, 1, 2), Plan(1, 2, 4), Plan(1, 8), Plan(8)], ids=str)
def test_prices_of_sizes_between_are_those_of_their_own_cuts(plan: Plan) -> None:
    check(mlp_sizes(), plan, (64, 128, 512, 1024))


@pytest.mark.parametrize("name", STEPS)
def test_so_they_are_of_any_step(name: str) -> None:
    step = STEPS[name]()
    # Of no dim that weights have, too: then zeros of either would be one array.
    check(BatchSizes(step.function, step.arguments, step.batch), Plan(1, 1, 2), (40, 80, 160))


def test_how_data_ways_are_parted_counts() -> None:
    every = [SizedPlan(Plan(8, strategy="fsdp", replicas=replicas), 64) for replicas in (1, 2, 4)]
    sizes = mlp_sizes()
    together = PlanPrices(sizes, every, MACHINE)
    alone = [PlanPrices(sizes, [each], MACHINE).simulate(each).time_s for each in every]
    assert [together.simulate(each).time_s for each in every] == alone
    assert len(set(alone)) == 3


def test_few_are_cut() -> None:
    every = [SizedPlan(Plan(1, 1, 2, count), size) for count in (2, 4, 8) for size in (64, 128, 256, 512)]
    sizes, cut = mlp_sizes(), list[int]()

    class Counted(PlanPrices):
        def cut(self, plan: SizedPlan) -> Pipeline:
            cut.append(plan.examples)
            return super().cut(plan)

    prices = Counted(sizes, every, MACHINE)
    for each in every:
        prices.simulate(each)
    assert cut == [8, 256]
    assert sizes.traced == [64, 512]


def test_a_traced_program_has_one_size() -> None:
    step = STEPS["mlp"]()
    sizes = BatchSizes(hs.trace(step.function)(*step.arguments), (), step.batch)
    with pytest.raises(ScheduleError, match="traced for a batch of 8, not of 16"):
        sizes.planner(16)


def test_the_best_batch_size_is_the_one_of_most_examples_a_second() -> None:
    step, shape = STEPS["mlp"](), jax.ShapeDtypeStruct
    arguments = [shape((256, 256), jnp.float32)] * 4, shape((64, 256), jnp.float32)
    found = hs.search(
        step.function, *arguments, batch=["batch"], machine=MACHINE, microbatches=(2,), batch_sizes=(64, 256)
    )
    assert {priced.batch_size for priced in found.table} == {64, 256}
    fitting = [priced for priced in found.table if priced.fits]
    seconds_each = [priced.time_s / priced.batch_size for priced in fitting]
    assert seconds_each[0] == min(seconds_each)
    assert fitting[0].batch_size == 256
    assert "f32[256,256]" in str(found.schedule.functions["main"].parameters[-1].type)
    alone = hs.search(step.function, *arguments, batch=["batch"], machine=MACHINE, microbatches=(2,), prune=False)
    assert {p.plan for p in alone.table} == {p.plan for p in found.table if p.batch_size == 64}


def test_programs_with_other_ops_are_not_resizable() -> None:
    text = "HloModule m\nENTRY e {{\n  x = f32[{0}] parameter(0)\n  ROOT y = f32[{0}] {1}(x)\n}}"
    first, other = hs.load(text.format(4, "negate")), hs.load(text.format(8, "sine"))
    with pytest.raises(NotResizable, match="have other ops"):
        ResizableModule(first, other)
    made = ResizableModule(first, hs.load(text.format(10, "negate")))
    assert str(made.at(Between(1, 2)).entry.root.shape) == "f32[7]"
    with pytest.raises(NotResizable, match="4 to 10 is no growth by 4 examples, 1 of them"):
        made.at(Between(1, 4))
    assert first.entry.root.shape.dims == (4,)
