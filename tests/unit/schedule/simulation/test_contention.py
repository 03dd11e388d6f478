"""Transfers that are under way at the same time share the links of their devices: closed forms, and any schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given

import hlosharding as hs
from hlosharding.cost import Link, Machine
from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule import ScheduleBuilder, ScheduleSimulation, parse_schedule
from hlosharding.schedule.builder import Ref
from hlosharding.schedule.simulation import simulate_schedule
from hlosharding.schedule.steps import Functions
from tests.support.random_schedules import schedules
from tests.support.uniform_pipelines import machine

BYTES = 1000
NEAR, FAR = 1e-6, 1e-5
"""Seconds of the bytes of one message."""
START = 5e-7
MACHINE = replace(
    machine(8),
    devices_per_node=4,
    inside=Link(bandwidth=BYTES / NEAR, latency=START),
    between=Link(bandwidth=BYTES / FAR, latency=START),
)


def sent(*ways: tuple[Sequence[int], Sequence[int]], on: Machine = MACHINE) -> ScheduleSimulation:
    """A message for each."""
    b = ScheduleBuilder()
    given = [b.parameter(f"x{n}", Shape.array("u8", (BYTES,)), source) for n, (source, _) in enumerate(ways)]
    made = [b.send(x, target) for x, (_, target) in zip(given, ways, strict=True)]
    return b.finish(*made).simulate(on, semantics="contention")


def taken(run: ScheduleSimulation) -> list[float]:
    return [(event.end - event.start - START) for event in run.timeline]


@pytest.mark.parametrize(
    ("ways", "seconds"),
    [
        ([((0,), (1,)), ((0,), (2,))], [2 * NEAR, 2 * NEAR]),  # one way out
        ([((1,), (0,)), ((2,), (0,)), ((3,), (0,))], [3 * NEAR] * 3),  # one way in
        ([((0,), (1,)), ((1,), (0,))], [NEAR, NEAR]),  # there and back
        ([((0,), (1,)), ((2,), (3,))], [NEAR, NEAR]),
        ([((0,), (4,)), ((0,), (5,))], [2 * FAR, 2 * FAR]),  # one card
        ([((0,), (4,)), ((1,), (4,))], [2 * FAR, 2 * FAR]),
        ([((0,), (4,)), ((1,), (5,))], [FAR, FAR]),  # each device has its own share of the cards
        ([((0,), (4,)), ((0,), (1,))], [FAR, NEAR]),  # through the card, and inside
        ([((0, 1), (4, 5)), ((1, 2), (6, 7))], [2 * FAR, 2 * FAR]),  # both use device 1's
    ],
)
def test_what_two_transfers_share(ways: list[tuple[Sequence[int], Sequence[int]]], seconds: list[float]) -> None:
    assert taken(sent(*ways)) == [pytest.approx(each) for each in seconds]


def test_over_one_connection_one_goes_at_a_time() -> None:
    assert taken(sent(((0,), (1,)), ((0,), (1,)))) == [pytest.approx(NEAR)] * 2


def test_the_start_of_a_collective_is_not_shared() -> None:
    run = sent(((0,), (1,)), ((0,), (2,)), on=replace(MACHINE, collective_launch=3e-6))
    assert taken(run) == [pytest.approx(3e-6 + 2 * NEAR)] * 2


def test_collectives_use_the_ways_of_all_their_devices() -> None:
    """Each device gathers 3 kB of 4 kB, while device 0 sends one kB to a device that takes no part."""
    b = ScheduleBuilder()
    whole = b.parameter("x", Shape.array("u8", (4 * BYTES,)), (0,))
    pieces = b.split(whole, 4)
    there = [pieces[0], *(b.send(piece, (n,)) for n, piece in enumerate(pieces[1:], 1))]
    gathered = b.all_gather(*there)
    own = b.parameter("y", Shape.array("u8", (100 * BYTES,)), (0,))
    run = b.finish(*gathered, b.send(own, (5,)), b.send(own, (1,))).simulate(MACHINE, semantics="contention")
    [gather] = [event for event in run.timeline if "all-gather" in event.text]
    # Way out of 0, inside: half the gather's, beside 100 kB that take far longer.
    assert gather.end - gather.start == pytest.approx(2 * START + 2 * 3 * NEAR)


def test_a_slow_card_of_one_part_is_what_its_transfers_share() -> None:
    near = replace(MACHINE, num_devices=4)
    far = replace(near, between=Link(bandwidth=BYTES / FAR / 2, latency=START))
    on = Machine.of_parts(near, far)
    assert taken(sent(((0,), (4,)), on=on)) == [pytest.approx(2 * FAR)]
    assert taken(sent(((0,), (4,)), ((1,), (4,)), on=on)) == [pytest.approx(4 * FAR)] * 2
    # A card that is twice as fast serves two that are limited elsewhere.
    assert taken(sent(((0,), (4,)), ((0,), (5,)), on=on)) == [pytest.approx(2 * FAR)] * 2


def test_on_links_of_their_own_transfers_take_what_they_take() -> None:
    """From stage to stage, there and back, at any time: no link serves two connections."""
    b = ScheduleBuilder()
    moved: list[Ref] = []
    for n in range(5):
        there = b.send(b.send(b.parameter(f"x{n}", Shape.array("u8", (700 * n + 1,)), (0,)), (1,)), (6,))
        back = b.send(b.send(b.parameter(f"y{n}", Shape.array("u8", (900 * n + 1,)), (6,)), (1,)), (0,))
        moved += [there, back]
    schedule = b.finish(*moved)
    shared, alone = (schedule.simulate(MACHINE, semantics=each) for each in ("contention", "overlap"))
    assert shared.times == alone.times


@given(schedules())
def test_no_schedule_is_faster_than_without_others(functions: Functions) -> None:
    shared, alone = (simulate_schedule(functions, MACHINE, semantics=each) for each in ("contention", "overlap"))
    assert all(a >= b * (1 - 1e-12) for a, b in zip(shared.times.end, alone.times.end, strict=True))
    assert simulate_schedule(functions, MACHINE, semantics="contention").times == shared.times


def test_semantics_that_are_not_there() -> None:
    schedule = parse_schedule("func @main(%x: f32[4] on {0}) {\n  return %x\n}")
    with pytest.raises(ScheduleError, match="no semantics 'magic'; there are overlap, synchronous, contention"):
        schedule.simulate(MACHINE, semantics="magic")  # pyright: ignore[reportArgumentType]


def test_semantics_are_of_schedules() -> None:
    program = hs.load("HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}")
    with pytest.raises(ScheduleError, match="`semantics` is of schedules"):
        hs.simulate(program, semantics="contention")
