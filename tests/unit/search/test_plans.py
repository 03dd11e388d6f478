"""The text of a plan: what tables print is read back, and what is no plan is refused with its position."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.schedule import ORDERS as SCHEDULES
from hlosharding.schedule import order_and_chunks
from hlosharding.search import Plan

COUNTS = st.integers(1, 999_999_999)
PARTS = st.integers(1, 64)
WORDS = st.sampled_from(["", "fsdp", "zero2", "my-own.2", "Z/3", "8/1/1/1", "p", "\u00e9"])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    parts = draw(PARTS), draw(PARTS), draw(PARTS)
    schedule, order = draw(st.sampled_from(["", *SCHEDULES, "1f1b-x2"])), draw(st.sampled_from(["", *Plan.ORDERS]))
    data = draw(st.integers(1, 1000)) * math.prod(parts)
    ways = data, draw(COUNTS), draw(COUNTS), draw(COUNTS)
    chunks = order_and_chunks(schedule)[1]
    if draw(st.booleans()):
        return Plan(*ways, schedule, order, draw(WORDS), *parts, draw(st.booleans()))
    layers = draw(st.lists(COUNTS, min_size=1, max_size=4))
    stages = ways[0], ways[1], len(layers), ways[3]
    return Plan(*stages, schedule, order, draw(WORDS), *parts, draw(st.booleans()), layers=tuple(layers * chunks))


@given(plans())
def test_what_a_plan_prints_is_read_back(plan: Plan) -> None:
    assert Plan.parse(str(plan)) == plan


@given(plans(), st.randoms(use_true_random=False), st.sampled_from([" ", "  ", "\t"]))
def test_words_may_stand_in_any_order(plan: Plan, random: Random, space: str) -> None:
    ways, *words = str(plan).split()
    random.shuffle(words)
    assert Plan.parse(space + space.join([ways, *words])) == plan


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no D/T/P/K; at position 0: >>>; write how many ways of data, tensors"),
        ("8/2/2", "no D/T/P/K; at position 0: >>>8/2/2"),
        ("fsdp 8/1/1/1", "no D/T/P/K; at position 0: >>>fsdp 8/1/1/1"),
        ("0/1/1/1", "no D/T/P/K"),
        ("9999999999/1/1/1", "no D/T/P/K"),
        ("8/1/1/1 replicas=0", "no word of a plan; at position 8: 8/1/1/1 >>>replicas=0; write"),
        ("8/1/1/1 copies=2", "no word of a plan; at position 8"),
        ("8/1/1/1 fsdp zero2", "a second strategy; at position 13: 8/1/1/1 fsdp >>>zero2"),
        ("8/1/1/1 1f1b gpipe", "a second schedule; at position 13"),
        ("2/2/1/1 DT TD", "a second order; at position 11"),
        ("8/1/1/1 replicas=2 replicas=2", "a second replicas; at position 19"),
        ("8/2/1/1 PT", "'PT' is no order of 8/2/1; at plan 8/2/1/1 PT; write P, D and T, each once, as PTD"),
        ("1/1/2/1 layers=3", "layers of 1 stages (3) for 2; give each stage, of each chunk, one layer or more"),
        ("1/1/2/1 layers=3+0", "no word of a plan; at position 8: 1/1/2/1 >>>layers=3+0"),
        ("8/1/1/1 replicas=3", "8 data ways are not 3 replicas; at plan 8/1/1/1 replicas=3"),
    ],
)
def test_what_is_no_plan_is_refused_with_its_position(text: str, says: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        Plan.parse(text)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"data": 0}, "data=0; at plan 0/1/1/1; count from 1"),
        ({"schedule": "1f1c"}, "no schedule '1f1c'; at plan 1/1/1/1 1f1c; there are forward, gpipe, 1f1b"),
        ({"strategy": "my rows"}, "'my rows' names no strategy"),
        ({"strategy": "gpipe"}, "'gpipe' names no strategy"),
        ({"strategy": "sequence"}, "'sequence' names no strategy"),
        ({"strategy": "even"}, "'even' names no strategy"),
        ({"strategy": "DT"}, "'DT' names no strategy; at plan 1/1/1/1 DT; take one word"),
    ],
)
def test_no_plan_has_a_word_that_its_text_could_not_say(fields: dict[str, int], says: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        Plan(**fields)  # pyright: ignore[reportArgumentType]
    assert says in str(refused.value)


def test_devices_that_nobody_has_are_not_listed() -> None:
    with pytest.raises(hs.ShardingError, match="999999999 devices are more than"):
        _ = Plan.parse("1/1/999999999/1").submeshes


def test_given_plans_say_all_and_fit_the_machine() -> None:
    program = hs.load("HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}")
    with pytest.raises(ScheduleError, match="replicas are said, and plans, which say all"):
        hs.search(program, batch=["x"], machine=machines.h100(4), plans=[Plan(4)], replicas=(1, 2))
    with pytest.raises(ScheduleError, match=r"plan 8/1/1/1 is for 8 devices, h100\(4\) has 4; take fewer"):
        hs.search(program, batch=["x"], machine=machines.h100(4), plans=[Plan(8)])


def test_where_nothing_divides_the_devices_that_is_said() -> None:
    program = hs.load("HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}")
    with pytest.raises(
        ScheduleError, match=r"4 devices cannot be divided by what is asked for; at replicas \[8\]; ask"
    ):
        hs.search(program, batch=["x"], machine=machines.h100(4), replicas=(8,))
