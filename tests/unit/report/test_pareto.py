"""Time against memory: who is on the front, and a picture of all."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

import hlosharding as hs
from hlosharding.cost import StepBreakdown
from hlosharding.report import pareto, pareto_svg
from hlosharding.search import Plan, PricedPlan

FIGURES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=12)


def priced(number: int, time_s: float, nbytes: float) -> PricedPlan:
    return PricedPlan(Plan(data=number + 1), 1, time_s, StepBreakdown(flops_s=time_s), nbytes, True)


@given(FIGURES)
def test_nobody_is_better_than_who_is_on_the_front_and_somebody_than_all_others(figures: list[tuple[int, int]]) -> None:
    table = [priced(number, *each) for number, each in enumerate(figures)]
    front = pareto(table)
    for each in table:
        better = [
            other
            for other in table
            if other.time_s <= each.time_s
            and other.peak_memory_bytes <= each.peak_memory_bytes
            and (other.time_s, other.peak_memory_bytes) != (each.time_s, each.peak_memory_bytes)
        ]
        alike = [o for o in front if (o.time_s, o.peak_memory_bytes) == (each.time_s, each.peak_memory_bytes)]
        assert bool(alike) is not bool(better)


def test_the_picture_has_a_point_for_each_plan_and_names_the_front() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[64,64] parameter(0)\n  ROOT y = f32[64,64] negate(x)\n}"
    found = hs.search(hs.load(text), batch=[0], machine=hs.machines.h100(4), microbatches=(2,))
    tree = ET.fromstring(pareto_svg(found))
    drawn = [each for each in tree.iter() if each.tag.endswith("circle")]
    assert len(drawn) == len(found.table)
    said = {each.text for each in tree.iter() if each.tag.endswith("text")}
    assert str(pareto(found.table)[0].plan) in said
    assert all(str(each.plan) in pareto_svg(found) for each in found.table)
