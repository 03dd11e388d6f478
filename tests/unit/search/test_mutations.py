"""Changes of one argument at a time find better plans than the built-in strategy, and what they find runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cost import Machine, machines
from hlosharding.errors import ScheduleError
from hlosharding.search import Plan, Planner
from hlosharding.search.comparison import time_text

MACHINE = machines.h100(4)


def narrow(weights: Any, x: Any) -> Any:
    """A training step of a perceptron that is narrow inside and wide outside."""

    def loss(weights: Any) -> Any:
        h = x
        for down, up in weights:
            h = jnp.tanh(jnp.tanh(h @ down) @ up)
        return (h**2).mean()

    value, grads = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads), value


def experts(weights: Any, x: Any) -> Any:
    """A training step of a layer of experts, each of which takes part in each example."""

    def loss(weights: Any) -> Any:
        router, up, down = weights
        gates = jax.nn.softmax(x @ router)
        h = jnp.tanh(jnp.einsum("bd,edf->ebf", x, up))
        return (jnp.einsum("ebf,efd,be->bd", h, down, gates) ** 2).mean()

    value, grads = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads), value


def sizes(step: Any, scale: int) -> tuple[Any, Any]:
    """Arguments: wide dims `scale` times as wide as 16."""
    wide = 16 * scale
    if step is narrow:
        weights: Any = [(jnp.zeros((wide, 8)), jnp.zeros((8, wide)))] * 2
        return weights, jnp.zeros((32, wide))
    return [jnp.zeros((16, 4)), jnp.zeros((4, 16, wide)), jnp.zeros((4, wide, 16))], jnp.zeros((4 * wide, 16))


def shapes(step: Any, scale: int) -> Any:
    return jax.eval_shape(lambda: sizes(step, scale))


def random(arguments: Any) -> Any:
    generator = np.random.default_rng(0)
    return jax.tree.map(lambda a: (generator.normal(size=a.shape) * 0.3).astype(np.float32), arguments)


def searched(step: Any, plan: Plan, machine: Machine = MACHINE, **options: Any) -> hs.SearchResult:
    return hs.search(step, *shapes(step, 256), batch=["x"], machine=machine, plans=[plan], **options)


CASES = ((narrow, Plan(1, 4)), (narrow, Plan(2, 2)), (experts, Plan(1, 4)))


@pytest.mark.parametrize(("step", "plan"), CASES, ids=lambda value: str(getattr(value, "__name__", value)))
def test_a_better_plan_is_found_and_runs(step: Any, plan: Plan, cpu_devices: list[Any]) -> None:
    found = searched(step, plan)
    better = found.improved()
    assert better.is_done
    assert better.changes
    assert better.priced.time_s < found.table[0].time_s == better.start.time_s
    times = [better.start.time_s, *(change.time_s for change in better.changes)]
    assert [change.time_before_s for change in better.changes] == times[:-1]
    first = better.changes[0]
    assert str(first).endswith(f": {time_text(first.time_before_s)} -> {time_text(first.time_s)}")
    assert times == sorted(times, reverse=True)
    again = searched(step, better.plan, strategies={"improved": better.strategy})
    assert again.table[0].time_s == pytest.approx(better.priced.time_s)
    arguments = random(sizes(step, 1))
    planner = Planner(hs.trace(step)(*arguments), ["x"], strategies={"improved": better.strategy})
    schedule = planner.schedule(better.plan, MACHINE)
    schedule.verify(MACHINE)
    leaves, expected = jax.tree.leaves(arguments), jax.tree.leaves(jax.jit(step)(*arguments))
    for made in (schedule.run_reference(*leaves), schedule.compile(cpu_devices)(*leaves)):
        for ours, theirs in zip(made, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_no_single_change_of_what_is_found_helps() -> None:
    first = searched(narrow, Plan(1, 4))
    better = first.improved()
    again = searched(narrow, better.plan, strategies={"improved": better.strategy}).improved()
    assert again.is_done
    assert not again.changes
    assert str(first.improved()) == str(better)


def test_the_steps_are_the_strategies_that_are_priced() -> None:
    few = searched(narrow, Plan(1, 4)).improved(steps=3)
    assert (few.tried, few.is_done) == (3, False)
    assert "the steps are used up" in str(few)


def test_a_pipeline_is_improved_too() -> None:
    arguments = random(sizes(narrow, 8))
    better = hs.search(narrow, *arguments, batch=["x"], machine=MACHINE, plans=[Plan(1, 2, 2, 2)]).improved(steps=30)
    assert better.plan.stages == 2
    expected = jax.tree.leaves(jax.jit(narrow)(*arguments))
    for ours, theirs in zip(better.schedule.run_reference(*jax.tree.leaves(arguments)), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_made_smaller() -> None:
    whole = searched(narrow, Plan(4)).table[0].peak_memory_bytes
    found = searched(narrow, Plan(4), replace(MACHINE, memory_bytes=0.9 * whole))
    with pytest.raises(ScheduleError, match="no plan fits"):
        _ = found.best
    better = found.improved()
    assert better.priced.fits
    assert not better.start.fits


def test_nothing_to_improve() -> None:
    with pytest.raises(ScheduleError, match="no plan could be priced on h100"):
        searched(narrow, Plan(3)).improved()


def test_the_view_tells_every_change() -> None:
    found = searched(narrow, Plan(1, 4))
    better = found.improved()
    record = hs.to_record(better)
    assert [change["argument"] for change in record["changes"]] == [change.argument for change in better.changes]
    assert (record["time_before_s"], record["time_s"]) == (found.table[0].time_s, better.priced.time_s)
    assert "Changes of 1/4/1/1" in hs.to_html(better)
