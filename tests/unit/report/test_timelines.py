"""Timelines say who works when; the figures of a view are the simulation's."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.report import schedule_view, timeline_svg, timeline_text, to_record, to_text
from hlosharding.schedule import StageProgram, UserOp, parse_schedule
from tests.support.uniform_pipelines import machine, pipeline

TEXT = """
func @main(%x: f32[4,4] on {0}) {
  %x_0, %x_1 = split(%x) dim=0 parts=2 axis=micro
  %y_0 = @forward(%x_0)
  %y_1 = @forward(%x_1)
  %d_0 = @backward(%y_0)
  %d_1 = @backward(%y_1)
  %d = concat(%d_0, %d_1) dim=0
  return %d
}"""
OPS = {"forward": UserOp("forward", lambda x: x, seconds=1.0), "backward": UserOp("backward", lambda x: x, seconds=2.0)}


def test_digits_are_forward_passes_and_letters_backward_passes() -> None:
    run = parse_schedule(TEXT, OPS).simulate(machine(1))
    assert timeline_text(run, 12) == "{0}  0011aaaabbbb"


def test_what_a_pass_reads_does_not_say_what_it_is() -> None:
    text = TEXT.replace("%x", "%weights_of_backward")
    assert timeline_text(parse_schedule(text, OPS).simulate(machine(1)), 12) == "{0}  0011aaaabbbb"


def test_the_bubble_of_a_pipeline_is_blank() -> None:
    run = pipeline(2, 2, [1.0] * 2, [1.0] * 2).schedule("gpipe", 2).simulate(machine(2))
    assert timeline_text(run, 6) == "{0}  01  01\n{1}   0101"


def test_the_svg_is_well_formed_and_a_strangers_names_are_text() -> None:
    bad = OPS | {"forward": UserOp("forward<script>\x1b\u202e", lambda x: x, seconds=1.0)}
    found = timeline_svg(parse_schedule(TEXT, bad).simulate(machine(1)))
    assert found.isprintable()
    tree = ET.fromstring(found)
    assert not [each for each in tree.iter() if each.tag.endswith("script")]
    assert len([each for each in tree.iter() if each.tag.endswith("rect")]) == 4


def test_the_record_has_the_whole_critical_path() -> None:
    run = hs.simulate(parse_schedule(TEXT, OPS), machines.h100(1))
    record = to_record(run)
    assert record["time_s"] == run.time_s
    assert len(record["critical_path"]) == len(run.critical_path)
    assert [use["devices"] for use in record["usage"]] == ["{0}"]


def test_the_critical_path_says_where_the_time_goes() -> None:
    op = StageProgram.of("product", lambda x: x @ x, jax.ShapeDtypeStruct((64, 64), jnp.float32))
    schedule = parse_schedule("func @main(%x: f32[64,64] on {0}) {\n %y = @product(%x)\n return %y\n}", {"product": op})
    run = schedule.simulate(machines.h100(1))
    [step] = to_record(run)["critical_path"]
    [(line, seconds)] = step["source_lines"].items()
    assert line.startswith("test_timelines.py:")
    assert seconds == step["takes"]
    assert line in to_text(schedule_view(run))


def test_a_search_has_a_record_of_every_plan() -> None:
    module = hs.load("HloModule m\nENTRY e {\n  x = f32[8,8] parameter(0)\n  ROOT y = f32[8,8] tanh(x)\n}")
    found = hs.search(module, batch=[0], machine=machines.h100(2), microbatches=(2,))
    record = to_record(found)
    assert len(record["plans"]) + len(record["refused"]) + len(record["pruned"]) == 3
    assert {plan["fits"] for plan in record["plans"]} == {True}
