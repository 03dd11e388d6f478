"""Simulated pipelines take what the literature's closed forms say, exactly."""

from __future__ import annotations

import pytest

from hlosharding.schedule import PassKind, ScheduleSimulation
from tests.support.uniform_pipelines import machine, pipeline

GRID = [(2, 4), (4, 8), (4, 16), (8, 16), (8, 32)]
CHUNKS = [2, 4]


def simulated(
    name: str, p: int, m: int, f: float = 1.0, b: float = 2.0, w: float = 0.0, v: int = 1
) -> ScheduleSimulation:
    stages = p * v
    made = pipeline(p, m, [f / v] * stages, [b / v] * stages, [w / v] * stages if w else (), chunks=v)
    seconds: dict[PassKind, float] = {"forward": f, "backward": b, "weights": w or 1.0}
    return made.schedule(name, m, seconds=seconds).simulate(machine(p))


@pytest.mark.parametrize(("p", "m"), GRID)
@pytest.mark.parametrize(("f", "b"), [(1.0, 2.0), (1.0, 1.0), (3.0, 0.5)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_gpipe_and_1f1b(name: str, p: int, m: int, f: float, b: float) -> None:
    assert simulated(name, p, m, f, b).time_s == pytest.approx((m + p - 1) * (f + b), rel=1e-12)


@pytest.mark.parametrize(("p", "m"), GRID)
def test_forward_only(p: int, m: int) -> None:
    found = pipeline(p, m, [1.5] * p, [1.0] * p).schedule("forward", m).simulate(machine(p))
    assert found.time_s == pytest.approx((m + p - 1) * 1.5, rel=1e-12)


@pytest.mark.parametrize("v", CHUNKS)
@pytest.mark.parametrize(("p", "m"), GRID)
@pytest.mark.parametrize("name", ["1f1b", "breadth-first"])
def test_several_chunks_a_device(name: str, p: int, m: int, v: int) -> None:
    f, b = 1.0, 2.0
    assert simulated(name, p, m, f, b, v=v).time_s == pytest.approx(m * (f + b) + (p - 1) * (f + b) / v, rel=1e-12)


@pytest.mark.parametrize(("p", "m"), GRID)
@pytest.mark.parametrize(("f", "b", "w"), [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (1.0, 1.0, 0.5)])
def test_zero_bubble_h1(p: int, m: int, f: float, b: float, w: float) -> None:
    expected = m * (f + b + w) + (p - 1) * (f + b - w)
    assert simulated("zb-h1", p, m, f, b, w).time_s == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("p", "m"), [*GRID, (4, 2), (8, 3)])
def test_microbatches_in_flight(p: int, m: int) -> None:
    def in_flight(name: str, w: float = 0.0) -> list[float]:
        return [use.peak_bytes for use in simulated(name, p, m, w=w).usage]

    assert in_flight("gpipe") == [m] * p
    assert in_flight("1f1b") == [min(p - i, m) for i in range(p)]
    assert in_flight("zb-h1", w=1.0) == [min(p, m)] * p


@pytest.mark.parametrize("v", CHUNKS)
@pytest.mark.parametrize(("p", "m"), GRID)
def test_chunks_in_flight(p: int, m: int, v: int) -> None:
    interleaved = [use.peak_bytes for use in simulated("1f1b", p, m, v=v).usage]
    assert interleaved == [min(2 * (p - i - 1) + (v - 1) * p + 1, m * v) for i in range(p)]
    assert [use.peak_bytes for use in simulated("breadth-first", p, m, v=v).usage] == [m * v] * p
