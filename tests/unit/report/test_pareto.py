"""Time against memory: a picture of all plans, and one in letters."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import hlosharding as hs
from hlosharding.report import pareto_svg
from hlosharding.report.pareto import pareto_text
from hlosharding.search import pareto


def test_the_picture_has_a_point_for_each_plan_and_names_the_front() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[64,64] parameter(0)\n  ROOT y = f32[64,64] negate(x)\n}"
    found = hs.search(hs.load(text), batch=[0], machine=hs.machines.h100(4), microbatches=(2,))
    tree = ET.fromstring(pareto_svg(found))
    drawn = [each for each in tree.iter() if each.tag.endswith("circle")]
    assert len(drawn) == len(found.table)
    said = {each.text for each in tree.iter() if each.tag.endswith("text")}
    assert str(pareto(found.table)[0].plan) in said
    assert all(str(each.plan) in pareto_svg(found) for each in found.table)


def test_in_letters_the_fastest_stands_lowest_and_the_leanest_leftmost() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[64,64] parameter(0)\n  ROOT y = f32[64,64] negate(x)\n}"
    found = hs.search(hs.load(text), batch=[0], machine=hs.machines.h100(4), microbatches=(2,))
    [_, *lines, axis, _] = pareto_text(found).splitlines()
    drawn = [line.partition("|")[2] for line in lines]
    marks = [(row, column, mark) for row, line in enumerate(drawn) for column, mark in enumerate(line) if mark != " "]
    assert "+" in axis
    assert len(marks) <= len(found.table)
    assert {mark for *_, mark in marks} <= {"#", "o"}
    lowest, leftmost = max(row for row, *_ in marks), min(column for _, column, _ in marks)
    assert "#" in {mark for row, _, mark in marks if row == lowest}
    assert "#" in {mark for _, column, mark in marks if column == leftmost}
