"""What a plan takes at least: of equal stages exactly that, if moving costs nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hlosharding as hs
from hlosharding.search import Plan
from hlosharding.search.plan_space import least_seconds
from tests.support.uniform_pipelines import machine, pipeline

RATE = 1e3
STEP = hs.cost(hs.load("HloModule m\nENTRY e {\n  x = f32[48000] parameter(0)\n  ROOT y = f32[48000] negate(x)\n}"))


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("1f1b-x2", 2), ("1f1b-x4", 4), ("breadth-first-x2", 2)]
)
@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 4), (4, 8)])
def test_equal_stages_meet_the_bound(p: int, m: int, schedule: str, chunks: int) -> None:
    seconds = STEP.flops / RATE / (p * m * chunks)
    cut = pipeline(p, m, [seconds / 3] * p * chunks, [seconds * 2 / 3] * p * chunks, chunks=chunks)
    slow = replace(machine(p), peak_flops=(("f32", RATE),), vector_flops=RATE)
    bound = least_seconds(Plan(1, 1, p, m, schedule), STEP, slow)
    assert cut.schedule(schedule, m).simulate(machine(p)).time_s == pytest.approx(bound, rel=1e-9)
