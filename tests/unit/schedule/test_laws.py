"""A schedule that breaks a law is refused, with the step at which it does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.schedule import UserOp, parse_schedule

HEAD = "func @main(%x: f32[8,4] on {0}, %w: f32[4,4] on {0}, %far: f32[4,4] on {1}) {\n"
OPS = {
    "layer": UserOp("layer", lambda w, x: x),
    "grad": UserOp("grad", lambda w, x: [w, x], sums=(0,)),
    "update": UserOp("update", lambda w, dw: w, donates=(0,)),
}

BROKEN = {
    "use before definition": ("%y = @layer(%w, %z)", "%z is not defined before"),
    "defined twice": ("%y = @layer(%w, %x)\n%y = @layer(%w, %x)", "%y is defined twice"),
    "read after free": ("free %x\n%y = @layer(%w, %x)", "%x is gone"),
    "read after it was overwritten": ("%v = @update(%w, %w)\n%y = @layer(%w, %x)", "%w is gone"),
    "operands on two devices": ("%y = @layer(%far, %x)", "operand 1 lies on {0}, operand 0 on {1}"),
    "sent to where it is": ("%y = send(%x) to={0}", "from {0} to {0}"),
    "stated type": ("%y = send(%x) to={1} : f32[8,4] on {2}", "%y is f32[8,4] on {1}, stated as f32[8,4] on {2}"),
    "a type too many": (
        "%y = send(%x) to={1} : f32[8,4] on {1}; f32[8] on {9}",
        "it has 1 results, 2 types are stated",
    ),
    "uneven microbatches": ("%a, %b, %y = split(%x) dim=0 parts=3 axis=micro", "cannot be cut into 3 equal parts"),
    "no such dim": ("%a, %y = split(%x) dim=2 parts=2 axis=micro", "has no dim 2"),
    "split twice along one axis": (
        "%a, %b = split(%x) dim=0 parts=2 axis=micro\n%c, %y = split(%a) dim=1 parts=2 axis=micro",
        "a piece of micro already",
    ),
    "too many results": ("%y, %z = @layer(%w, %x)", "it has 1 results, 2 are named"),
    "different microbatches": (
        "%a, %b = split(%x) dim=0 parts=2 axis=micro\n%y = @layer(%a, %b)",
        "operand 1 is piece 1/2 of micro, one before it piece 0/2 of micro",
    ),
    "pieces in another order": (
        "%a, %b = split(%x) dim=0 parts=2 axis=micro\n%y = concat(%b, %a) dim=0",
        "in another order",
    ),
    "a piece joined twice": (
        "%a, %b = split(%x) dim=0 parts=2 axis=micro\n%y = concat(%a, %a) dim=0",
        "is there twice",
    ),
    "a reduction is missing": (
        "%a, %b = split(%x) dim=0 parts=2 axis=micro\n%dw, %dx = @grad(%w, %a)\n%y = @update(%w, %dw)",
        "operand 1 is a sum without terms 1 of micro",
    ),
    "a term is added twice": (
        "%a, %b = split(%x) dim=0 parts=2 axis=micro\n%dw, %dx = @grad(%w, %a)\n%ew, %ex = @grad(%w, %a)\n"
        "%y = add(%dw, %ew)",
        "term 0 of micro is in the sum twice",
    ),
    "reduced though it is whole": ("%y = reduce(%w, %far) to={0}", "they were reduced already"),
    "a result is not the whole": ("%y, %b = split(%x) dim=0 parts=2 axis=micro", "not the whole"),
    "a collective of values on one device": ("%y, %z = all-reduce(%w, %w)", "its operands lie on {0} and {0}"),
    "no function": ("%y = call @nothing(%x)", "no function @nothing"),
    "a function that calls itself": ("%y = call @main(%x, %w, %far)", "@main calls itself"),
    "no program": ("%y = @nothing(%x)", "no program @nothing"),
    "no op": ("%y = nothing(%x)", "no op 'nothing'"),
    "no attribute": ("%y = send(%x) to={1} dim=0", "send has no attribute 'dim'"),
    "a lacking attribute": ("%y = send(%x)", "send lacks to="),
    "attribute of another kind": ("%y = concat(%x) dim=first", "dim=first of concat"),
    "no step": ("%y send %x", "no step"),
    "no name": ("y = send(%x) to={1}", "no step"),
    "no devices": ("%y = send(%x) to={a}", "no devices"),
    "a step after return": ("return %x\n%y = send(%x) to={1}", "a step after return"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_it_is_refused_where_it_is_wrong(case: str) -> None:
    steps, message = BROKEN[case]
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(f"{HEAD}{steps}\nreturn %y\n}}", OPS)
    assert message in str(caught.value)
    assert caught.value.where is not None
    assert "line" in caught.value.where or "return" in caught.value.where


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no function @main"),
        ("func @other() {\nreturn\n}", "no function @main"),
        ("hello", "neither a function nor a program"),
        ("func @main(%x: f32[8] on {0}) {\n", "@main has no end"),
        ("func @main(%x: f32[8] on {0}) {\n}", "@main has no return"),
        ("func @main(%x) {\nreturn %x\n}", "parameter %x has no type"),
        ("func @main(%x: f32[8]) {\nreturn %x\n}", "no type: 'f32[8]'"),
        ("func @main(%x: f32[8] on {0}, %x: f32[8] on {0}) {\nreturn %x\n}", "%x is defined twice"),
        ("func @main(%x: f32[8] on {0} as {devices=[2]<=[2]}) {\nreturn %x\n}", "2"),
        ("program @p(f32[8] as {replicated}) -> (f32[8] as {replicated}) devices=1 <<<\nHloModule", "has no end"),
        ("program @p(f32[8] as {replicated}) -> () devices=1 <<<\nno hlo\n>>>", "line 1"),
    ],
)
def test_text_that_is_no_schedule(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(text)
    assert message in str(caught.value)


def test_memory_over_the_limit_names_device_and_step() -> None:
    text = "func @main(%x: f32[4000000000] on {0}) {\n%y = send(%x) to={1}\n%z = send(%y) to={2}\nreturn %z\n}"
    schedule = parse_schedule(text)
    schedule.verify(machines.h100(4))
    with pytest.raises(ScheduleError, match=r"device 0 of .* holds 16.00 GB, it has 8.00 GB"):
        schedule.verify(replace(machines.h100(4), memory_bytes=8e9))
    with pytest.raises(ScheduleError, match="there is no device 2"):
        schedule.verify(machines.h100(2))


TWO_AXES = """func @main(%x: f32[8,4] on {0}, %w: f32[4] on {0}) {
%a, %b = split(%x) dim=0 parts=2 axis=data
%c = send(%b) to={1}
%v = send(%w) to={1}
%a0, %a1 = split(%a) dim=0 parts=2 axis=micro
%c0, %c1 = split(%c) dim=0 parts=2 axis=micro
%g0 = @grad(%w, %a0)
%g1 = @grad(%w, %a1)
%h0 = @grad(%v, %c0)
%h1 = @grad(%v, %c1)
"""
SUMS = {
    "microbatches first": "%g = add(%g0, %g1)\n%h = add(%h0, %h1)\n%y, %z = all-reduce(%g, %h)\nreturn %y\n}",
    "data first": "%p = reduce(%g0, %h0) to={0}\n%q = reduce(%g1, %h1) to={0}\n%y = add(%p, %q)\nreturn %y\n}",
}


@pytest.mark.parametrize("order", SUMS)
def test_gradients_add_over_data_and_microbatches(order: str) -> None:
    grad = UserOp("grad", lambda w, x: w, lambda w, x: w * x.sum(0), sums=(0,))
    x, w = np.arange(32, dtype=np.float32).reshape(8, 4), np.arange(4, dtype=np.float32)
    [found] = parse_schedule(TWO_AXES + SUMS[order], {"grad": grad}).run_reference(x, w)
    np.testing.assert_array_equal(found, w * x.sum(0))


def test_a_sum_over_data_of_one_microbatch_is_not_the_whole() -> None:
    grad = UserOp("grad", lambda w, x: w, sums=(0,))
    with pytest.raises(ScheduleError, match="not the whole"):
        parse_schedule(f"{TWO_AXES}%y = reduce(%g0, %h0) to={{0}}\nreturn %y\n}}", {"grad": grad})
