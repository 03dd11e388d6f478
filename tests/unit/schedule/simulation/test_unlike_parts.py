"""Schedules on a machine of unlike nodes: each step at the pace of its own devices, each device with its own memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hlosharding.cost import Link, Machine
from hlosharding.errors import ScheduleError
from hlosharding.schedule import Schedule, ScheduleBuilder, StageProgram
from tests.support.uniform_pipelines import machine

COUNT = 1000
NEAR = replace(machine(1), name="near", memory_bandwidth=1e9, memory_bytes=1e6, between=Link(bandwidth=1e9, latency=0))
FAR = replace(NEAR, name="far", memory_bandwidth=2e9, between=Link(bandwidth=5e8, latency=1e-6))
BOTH = Machine.of_parts(NEAR, FAR)


def one_more(x: Any) -> Any:
    return x + 1


OP = StageProgram.of("one_more", one_more, jax.ShapeDtypeStruct((COUNT,), jnp.float32))


def two_stages(microbatches: int) -> Schedule:
    b = ScheduleBuilder()
    given = [b.parameter(f"x{n}", OP.inputs[0].shape, (0,)) for n in range(microbatches)]
    return b.finish(*(made for x in given for made in b.run(OP, b.send(*b.run(OP, x), to=(1,)))))


@pytest.mark.parametrize("microbatches", [1, 2, 5])
def test_a_pipeline_of_two_unlike_stages(microbatches: int) -> None:
    """Of 4 kB one is read and one written: 8 us near, 4 us far; the send takes 1 us and 8 us over the slower card."""
    run = two_stages(microbatches).simulate(BOTH)
    assert run.time_s == pytest.approx(8e-6 + microbatches * 9e-6 + 4e-6, rel=1e-12)
    lines = {event.devices: list(run.source_lines(event).values()) for event in run.timeline}
    assert lines == {(0,): [pytest.approx(8e-6)], (0, 1): [], (1,): [pytest.approx(4e-6)]}


def test_the_other_way_round() -> None:
    """4 us, then 9 us a send; behind the last one 8 us."""
    run = two_stages(3).simulate(Machine.of_parts(FAR, NEAR))
    assert run.time_s == pytest.approx(4e-6 + 3 * 9e-6 + 8e-6, rel=1e-12)


def test_local_ops_and_collectives_take_what_the_slowest_takes() -> None:
    b = ScheduleBuilder()
    [first, second] = b.split(b.parameter("x", OP.inputs[0].shape, (0,)), 2)
    near, far = b.all_gather(first, b.send(second, (1,)))
    joined = [b.concat(*b.split(whole, 2)) for whole in (near, far)]
    run = b.finish(*joined).simulate(BOTH)
    seconds = {(event.text.split("(")[0], event.devices): event.end - event.start for event in run.timeline}
    found = [taken for (text, _), taken in seconds.items() if "split" not in text]
    # 2 kB sent; of 4 kB half received, in one hop; 4 kB read and written, near and far.
    assert found == [pytest.approx(each) for each in (1e-6 + 4e-6, 1e-6 + 4e-6, 8e-6, 4e-6)]


def test_each_device_has_the_memory_of_its_part() -> None:
    schedule = two_stages(1)  # 8 kB on each: what comes in, what goes out
    schedule.verify(Machine.of_parts(NEAR, replace(FAR, memory_bytes=8_000)))
    for small, parts in ((1, (NEAR, replace(FAR, memory_bytes=7_999))), (0, (replace(NEAR, memory_bytes=7_999), FAR))):
        with pytest.raises(ScheduleError, match=f"device {small} of .* holds 0.00 GB, it has 0.00 GB"):
            schedule.verify(Machine.of_parts(*parts))


def test_a_small_part_is_refused_though_another_holds_more() -> None:
    schedule = two_stages(3)  # near, all that comes in is the caller's
    run = schedule.simulate(BOTH)
    near, far = (use.peak_bytes for use in run.usage)
    assert near > far
    assert [schedule.simulate(Machine.of_parts(NEAR, replace(FAR, memory_bytes=far - n))).fits for n in (0, 1)] == [
        True,
        False,
    ]
    with pytest.raises(ScheduleError, match="device 1 of"):
        schedule.verify(Machine.of_parts(NEAR, replace(FAR, memory_bytes=far - 1)))


def test_replicas_on_unlike_parts_are_told_apart() -> None:
    b = ScheduleBuilder()
    schedule = b.finish(b.send(b.parameter("x", OP.inputs[0].shape, (0, 1)), (2, 3)))
    two = replace(NEAR, num_devices=2, devices_per_node=2)
    assert schedule.simulate(Machine.of_parts(two, two)).classes.members == ((0, 1), (2, 3))
    assert schedule.simulate(Machine.of_parts(NEAR, FAR, two)).classes.members == ((0,), (1,), (2, 3))


def test_a_device_beyond_the_last_part() -> None:
    with pytest.raises(ScheduleError, match="there is no device 1 in near"):
        two_stages(1).simulate(Machine.of_parts(NEAR))
