"""Where the time of a step goes: closed forms of small programs, and parts that add up to the step."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlosharding as hs
from hlosharding.cost import StepBreakdown, cost, machines, simulate
from hlosharding.cost.step_breakdown import PARTS, Part, find_exposed
from tests.unit.cost.test_simulator import TRIP, Program

H100 = machines.h100(8)


def test_every_part_has_a_bound() -> None:
    assert tuple(PARTS) == get_args(Part)


def test_a_program_that_takes_no_time_is_told_so() -> None:
    assert "takes no time" in str(simulate(hs.load("HloModule m\nENTRY e { ROOT x = f32[] constant(1) }"), H100))


@pytest.mark.parametrize(
    ("machine", "part"), [(H100, "inside_s"), (replace(H100, devices_per_node=4), "between_s")], ids=["one", "two"]
)
def test_what_computing_does_not_hide_counts_for_its_links(machine: hs.Machine, part: Part) -> None:
    p = Program()
    module = p.done(p.dot(p.x), p.all_reduce(p.all_reduce(p.x)))
    found, report = simulate(module, machine).breakdown, cost(module, machine)
    assert found.flops_s == pytest.approx(report.compute_s)
    assert getattr(found, part) == pytest.approx(report.comm_s - report.compute_s)
    assert found.total_s == pytest.approx(simulate(module, machine).time_s)
    assert found.by_bound[PARTS[part][0]] == getattr(found, part)


@pytest.mark.parametrize(
    ("function", "size", "part"),
    [(jnp.dot, 4096, "flops_s"), (jnp.add, 4096, "memory_s"), (jnp.add, 8, "launch_s")],
    ids=["a product", "a large sum", "a small sum"],
)
def test_kernels_are_bound_by_what_takes_longest(function: object, size: int, part: Part) -> None:
    x = jnp.ones((size, size))
    run = hs.simulate(hs.trace(function)(x, x), machines.h100(1))
    assert run.breakdown == StepBreakdown(**{part: run.time_s})


@pytest.mark.parametrize(("turn", "exposed_trips"), [("negate(piece)", 1), ("slice(x), slice={[0:512], [0:4096]}", 10)])
def test_a_loop_hides_what_its_trips_hide(turn: str, exposed_trips: int) -> None:
    module = hs.load(TRIP.format(turn=turn), format="hlo")
    run, report = simulate(module, H100), cost(module, H100)
    assert run.breakdown.total_s == pytest.approx(run.time_s)
    assert run.breakdown.inside_s == pytest.approx(report.comm_s * exposed_trips / 10, rel=0.02)


def test_waiting_for_launches_is_told_from_computing() -> None:
    slow = replace(machines.a100(1), dispatch=1e-3)
    run = hs.simulate(hs.trace(lambda x: jnp.sin(jnp.tanh(x)))(jnp.ones((2048, 2048))), slow, runtime="eager")
    assert run.breakdown.bound == "launches"
    assert run.breakdown.memory_s + run.breakdown.waiting_s == pytest.approx(run.time_s)


SPANS = st.lists(st.integers(0, 30), unique=True, max_size=8).map(
    lambda ends: list(zip(*[iter(sorted(ends))] * 2, strict=False))
)


@given(SPANS, SPANS, SPANS)
def test_each_moment_counts_once(
    computing: list[tuple[int, int]], near: list[tuple[int, int]], far: list[tuple[int, int]]
) -> None:
    others = [[(*span, "inside_s") for span in near], [(*span, "host_s") for span in far]]
    found = find_exposed([(*span, None) for span in computing], others, 30)

    def busy(spans: list[tuple[int, int]], moment: int) -> bool:
        return any(a <= moment < b for a, b in spans)

    idle = [t for t in range(30) if not busy(computing, t)]
    first = [t for t in idle if busy(near, t)]
    second = [t for t in idle if busy(far, t) and t not in first]
    expected = {"inside_s": len(first), "host_s": len(second), "waiting_s": len(idle) - len(first) - len(second)}
    assert {part: found.get(part, 0) for part in expected} == expected
