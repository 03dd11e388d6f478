"""What pipelines with chunks take: the published bubble, scanned what listed layers do, no less than the bound."""

from __future__ import annotations

import pytest

from benchmarks.published.planning import planner_of
from benchmarks.published.transformer import Config
from hlosharding.cost import machines
from hlosharding.schedule import ScheduleSimulation
from hlosharding.search import Plan
from hlosharding.search.least_seconds import LeastWork, least_seconds

UNIFORM = Config(
    layers=8, width=4096, heads=32, vocabulary=64, length=2048, hidden=16384, gated=True, positions="rotary", tied=False
)
"""Next to its layers nothing else takes time."""
BATCH, STAGES, MICROBATCHES = 64, 2, 8
MACHINE = machines.h100(STAGES)
CHUNKS = {"1f1b": 1, "1f1b-x1": 1, "1f1b-x2": 2, "1f1b-x4": 4, "breadth-first-x2": 2}


def simulated(config: Config, schedule: str) -> ScheduleSimulation:
    return planner_of(config, BATCH).schedule(plan(schedule), MACHINE).simulate(MACHINE)


def plan(schedule: str) -> Plan:
    return Plan(1, 1, STAGES, MICROBATCHES, schedule)


@pytest.mark.parametrize("schedule", CHUNKS)
@pytest.mark.parametrize("config", [UNIFORM, UNIFORM.listed()], ids=["scanned", "listed"])
def test_the_bubble_is_the_published_one(config: Config, schedule: str) -> None:
    """Narayanan et al. 2021: (p-1)/(v*m) of the time that the devices work."""
    found = simulated(config, schedule)
    bubble = (STAGES - 1) / (CHUNKS[schedule] * MICROBATCHES)
    assert found.time_s == pytest.approx(max(use.busy_s for use in found.usage) * (1 + bubble), rel=0.01)


@pytest.mark.parametrize(("schedule", "memory"), [("1f1b-x2", 1.06), ("1f1b-x4", 1.001), ("breadth-first-x2", 1.06)])
def test_scanned_layers_take_what_listed_ones_do(schedule: str, memory: float) -> None:
    """The stack of gradients that a loop over two layers fills is there from its first trip on; listed, the second
    layer's take the place of what is gone by then."""
    scanned, listed = simulated(UNIFORM, schedule), simulated(UNIFORM.listed(), schedule)
    assert scanned.time_s == pytest.approx(listed.time_s, rel=0.02)
    assert scanned.peak_memory_bytes < memory * listed.peak_memory_bytes


def test_no_plan_with_chunks_takes_less_than_its_bound() -> None:
    planner = planner_of(UNIFORM, BATCH)
    work = LeastWork.of(planner.module, planner.numbers, MACHINE)
    bounds = {schedule: least_seconds(plan(schedule), work) for schedule in CHUNKS}
    assert all(simulated(UNIFORM, schedule).time_s > bound for schedule, bound in bounds.items())
    assert bounds["1f1b"] == bounds["1f1b-x1"] > bounds["1f1b-x2"] == bounds["1f1b-x4"]
