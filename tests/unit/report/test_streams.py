"""A simulated step as a picture, and as data for a page that draws it itself."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

import hlosharding as hs
from hlosharding.report.streams import memory_svg, timeline_bars
from tests.support.shown_programs import partitioned


@pytest.mark.parametrize("seconds", [1.0, 4.0, 7.0, 7.5, 8.0, 8e-6, 9.99, 1.6e-3])
def test_an_axis_has_at_most_eight_times(seconds: float) -> None:
    run = hs.simulate(hs.load("HloModule m\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}"), hs.machines.cpu(1))
    marks = memory_svg(replace(run, time_s=seconds)).count('text-anchor="middle"')
    assert 4 <= marks <= 8


def test_bars_are_the_events() -> None:
    made = partitioned()
    run = hs.simulate(made, hs.machines.h100(8))
    numbers = {one.name: number for number, one in enumerate(made.collectives)}
    found = json.loads(json.dumps(timeline_bars(run, numbers)))
    assert len(found["bars"]) == len(run.timeline)
    told = {
        (found["streams"][lane], f"{start:.6g}"): (takes, what, found["lines"][line])
        for lane, _, start, takes, what, line in found["bars"]
    }
    for event in run.timeline:
        takes, what, line = told[event.stream, f"{event.start:.6g}"]
        joined = [numbers[op.name] for op in event.instructions if op.name in numbers]
        assert (what, line) == (joined or event.instruction.name, event.instruction.location)
        assert takes == pytest.approx(event.seconds, rel=1e-4)


def test_however_many_ops_there_are_bars_are_bounded_and_lose_no_op() -> None:
    dot = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ops = "".join(f"  t{n + 1} = f32[8,8] dot(t{n}, t{n}), {dot}\n" for n in range(30_000))
    text = f"HloModule m\nENTRY e {{\n  t0 = f32[8,8] parameter(0)\n{ops}  ROOT r = f32[8,8] negate(t30000)\n}}"
    run = hs.simulate(hs.load(text), hs.machines.cpu(1))
    bars = timeline_bars(run, {})["bars"]
    # A sixteenth of a pixel each, of 842.
    assert len(bars) <= 2 * 842 * 16 < len(run.timeline)
    assert sum(bar[6] if len(bar) > 6 else 1 for bar in bars) == len(run.timeline)
    assert all(before[2] <= after[2] for before, after in pairwise(bars))
