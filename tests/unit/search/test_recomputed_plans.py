"""Plans whose backward pass makes what layers made again: they compute what one device does, in less memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from benchmarks.published.experts import Experts
from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.plans import PlanFile
from hlosharding.search import Plan, apply_plan, schedule_of
from tests.support.published_steps import SMALL, Step, step_of

STACKING = replace(SMALL, remat="none")
EXPERTS = replace(STACKING, layers=2, experts=Experts(count=4, chosen=2, hidden=32))
LISTED = replace(STACKING, layers=4).listed()
CASES = [
    (STACKING, "8/1/1/1 fsdp recompute"),
    (STACKING, "2/2/2/2 zero1 sequence recompute"),
    (STACKING, "2/1/2/2 1f1b-x2 recompute"),
    (STACKING, "1/1/4/4 recompute layers=1+1+1+1 even"),
    (EXPERTS, "4/1/1/1 zero1 experts=4 recompute"),
    (LISTED, "8/1/1/1 fsdp recompute"),
    (LISTED, "2/2/2/2 zero1 sequence recompute"),
    (LISTED, "1/1/4/4 recompute"),
    (EXPERTS.listed(), "4/1/1/1 zero1 experts=4 recompute"),
]


@pytest.mark.parametrize(
    ("config", "text"), CASES, ids=[f"{text} {'scanned' if config.scanned else 'listed'}" for config, text in CASES]
)
def test_a_plan_computes_what_one_device_does(config: Any, text: str, cpu_devices: list[Any]) -> None:
    step_of(config).check(Plan.parse(text), cpu_devices)


@pytest.mark.parametrize("config", [STACKING, LISTED], ids=["scanned", "listed"])
@pytest.mark.parametrize("text", ["8/1/1/1 fsdp", "2/2/2/2 zero1 sequence"])
def test_it_takes_less_memory(config: Any, text: str) -> None:
    machine, planner = machines.h100(8), step_of(config).planner
    kept, again = (
        planner.schedule(Plan.parse(said), machine).simulate(machine) for said in (text, f"{text} recompute")
    )
    assert again.peak_memory_bytes < 0.8 * kept.peak_memory_bytes


@pytest.mark.parametrize("config", [SMALL, SMALL.listed()], ids=["scanned", "listed"])
def test_what_is_computed_again_already_is_refused(config: Any) -> None:
    with pytest.raises(ScheduleError, match=r"no layers whose gradients read much more .*leave recompute out"):
        step_of(config).planner.schedule(Plan.parse("8/1/1/1 recompute"))


def shapes(step: Step) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), step.arguments)


@pytest.mark.parametrize("text", ["4/2/1/1 fsdp recompute", "2/1/2/2 zero1 recompute"])
def test_a_plan_comes_back_from_its_file(text: str, tmp_path: Path) -> None:
    step, machine = step_of(STACKING), machines.h100(Plan.parse(text).num_devices)
    module = hs.trace(step.function)(*shapes(step))
    found = hs.search(module, batch=["tokens"], machine=machine, plans=[Plan.parse(text)])
    found.plan_file().write(tmp_path / "plan.toml")
    kept = PlanFile.read(tmp_path / "plan.toml")
    assert kept.recompute
    assert schedule_of(kept, module, machine).to_text() == found.schedule.to_text()
    assert len(apply_plan(kept, module).of_opcodes("dot")) > len(module.of_opcodes("dot"))


def residual_step(weights: Any, x: Any) -> Any:
    """Layers whose gradients read more than what they were given."""

    def loss(weights: Any) -> Any:
        last, _ = jax.lax.scan(lambda h, w: (h + jnp.tanh(jnp.sin(h) @ w[0]) @ w[1], None), x, weights)
        return jnp.sum(last**2)

    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))


def test_where_memory_is_scarce_it_is_found() -> None:
    wide, narrow = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((16, 64, 1024), (16, 1024, 64)))
    given = (wide, narrow), jax.ShapeDtypeStruct((8192, 64), jnp.float32)
    plans = [Plan.parse(text) for text in ("4/1/1/1 fsdp", "4/1/1/1 fsdp recompute")]
    kept, again = (
        hs.search(residual_step, *given, machine=machines.h100(4), plans=[plan], batch=["x"]).table[0] for plan in plans
    )
    assert again.peak_memory_bytes < 0.5 * kept.peak_memory_bytes
    machine = replace(machines.h100(4), memory_bytes=1.2 * again.peak_memory_bytes)
    asked = [*plans, Plan(4, strategy="zero1"), Plan(4, recompute=True)]
    found = hs.search(residual_step, *given, machine=machine, plans=asked, batch=["x"])
    assert found.best.recompute
    assert any("recompute" in line for line in found.explain().splitlines()[1:])
    [line] = [line for line in found.export_plan().unsaid if "jax.checkpoint" in line]
    assert "test_recomputed_plans.py:" in line


def test_what_is_donated_is_overwritten_there_too() -> None:
    planner, plan, machine = step_of(STACKING).planner, Plan.parse("8/1/1/1 fsdp recompute"), machines.h100(8)
    kept = planner.schedule(plan, machine).simulate(machine)
    donor = planner.with_donation()
    assert donor is not None
    donated = donor[0].schedule(plan, machine).simulate(machine)
    assert donated.peak_memory_bytes < kept.peak_memory_bytes


def test_every_kind_is_asked_for() -> None:
    step = step_of(STACKING)
    found = hs.search(
        step.function, *shapes(step), machine=machines.h100(2), batch=["tokens"], recompute=(False, True), prune=False
    )
    assert {plan.plan.recompute for plan in found.table} == {False, True}
