"""Schedules of strangers: what asks for more than anybody waits for is refused before it is done."""

from __future__ import annotations

import gc
import time

import pytest

import hlosharding as hs
from hlosharding.schedule import parse_schedule

HEAD = "func @main(%x: f32[4] on {0}) {\n"


def doubling(levels: int) -> str:
    text = HEAD + "  %y = call @f0(%x)\n  return %y\n}\n"
    for n in range(levels):
        text += (
            f"func @f{n}(%x: f32[4] on {{0}}) {{\n %y = call @f{n + 1}(%x)\n %z = call @f{n + 1}(%y)\n return %z\n}}\n"
        )
    return text + f"func @f{levels}(%x: f32[4] on {{0}}) {{\n  return %x\n}}\n"


def chain(length: int) -> str:
    text = HEAD + "  %y = call @f0(%x)\n  return %y\n}\n"
    for n in range(length):
        text += f"func @f{n}(%x: f32[4] on {{0}}) {{\n  %y = call @f{n + 1}(%x)\n  return %y\n}}\n"
    return text + f"func @f{length}(%x: f32[4] on {{0}}) {{\n  return %x\n}}\n"


def one(step: str, parameter: str = "%x: f32[4] on {0}") -> str:
    return f"func @main({parameter}) {{\n  {step}\n  return %x\n}}\n"


def head(inputs: str, outputs: str = "", more: str = "") -> str:
    return f"program @p({inputs}) -> ({outputs}){more} devices=1 <<<\nHloModule m\n>>>\n"


REFUSED = {
    "blanks": (one("%" + " " * 200_000 + "x"), "no step"),
    "blanks behind": (one("%a" + " " * 200_000 + "= y"), "no step"),
    "pieces": (one("%y = split(%x) dim=0 parts=999999999 axis=m", "%x: f32[999999999] on {0}"), "999999999 pieces"),
    "number": (one("%y = number() piece=0 parts=999999999 axis=m to={0}"), "999999999 pieces"),
    "pieces of a type": (one("free %x", "%x: f32[4] on {0}, piece 0/999999999 of m"), "999999999 pieces"),
    "no member": (one("free %x", "%x: f32[4] on {0}, piece ,/4 of m"), "no type"),
    "alien member": (one("free %x", "%x: f32[4] on {0}, piece 4/4 of m"), "no part of a whole"),
    "all members": (one("free %x", "%x: f32[4] on {0}, sum 0,1/2 of m"), "no part of a whole"),
    "axis twice": (one("free %x", "%x: f32[4] on {0}, sum 0/2 of m, sum 1/2 of m"), "name each axis once"),
    "no parameter": (one("free %x", ": f32[4] on {0}"), "no parameter"),
    "elements": (one("%c = constant() value={1} shape=s32[999999999] to={0}"), "1 elements for s32[999999999]"),
    "braces": (one("%c = constant() value=" + "{" * 100_000 + " shape=s32[] to={0}"), "no attribute of constant"),
    "digits": (one("%c = constant() value=" + "9" * 100_000 + " shape=s32[] to={0}"), "no elements of s32[]"),
    "devices": (one("free %x", "%x: f32[4] on {0-9999999}"), "no devices"),
    "devices again": (one("free %x", "%x: f32[4] on {" + "0-1048575," * 10 + "0}"), "devices are more than"),
    "many devices": (one("\n".join(f"%a{n} = send(%x) to={{0-1048575}}" for n in range(40))), "it names 41,943,040"),
    "turns": (one("\n".join(f"%a{n} = send(%x) to={{0-524287}}" for n in range(2)) + "\n%y = call @f0(%x)")
              + doubling(10).partition("}\n")[2], "on 524288 devices"),
    "calls": (doubling(40), "its run takes 4.4e+12 steps"),
    "deep calls": (chain(5000), "100 calls deep"),
    "parentheses": (head(") -> (" * 20_000), "no head of a program"),
    "more parentheses": (head("(" * 100_000), "no head of a program"),
    "many digits": (head("f32[8] as {replicated}", more=" sums={" + "9" * 5000 + "}"), "no head of a program"),
    "many devices of a program": ("program @p() -> () devices=9999999 <<<\n>>>\n", "9999999 devices are more than"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_soon(case: str) -> None:
    text, says = REFUSED[case]
    gc.freeze()  # what other tests of this process left behind is not walked
    try:
        began = time.process_time()
        with pytest.raises(hs.ScheduleError) as refused:
            parse_schedule(text)
        seconds = time.process_time() - began
    finally:
        gc.unfreeze()
    assert says in str(refused.value)
    assert seconds < 1


def test_a_program_is_no_path() -> None:
    with pytest.raises(hs.ScheduleError) as refused:
        parse_schedule(f"program @p() -> () devices=1 <<<\n{__file__}\n>>>\n")
    assert "No such file" not in str(refused.value)
    with pytest.raises(hs.ScheduleError) as refused:
        parse_schedule("program @p() -> () devices=1 <<<\nno/such/file.hlo\n>>>\n")
    assert "No such file" not in str(refused.value)


def test_what_is_within_bounds_is_read() -> None:
    assert len(parse_schedule(doubling(10)).functions) == 12
    assert len(parse_schedule(chain(90)).functions) == 92
    pieces = ", ".join(f"%x{n}" for n in range(1024))
    text = f"%y, {pieces} = split(%x) dim=0 parts=1025 axis=a-b\n %z = concat(%y, {pieces}) dim=0"
    assert parse_schedule(one(text, "%x: f32[1025] on {0}")).devices == (0,)


PROGRAM = """program @p(f32[8] as {{replicated}}) -> (f32[8] as {{replicated}}){more} devices=1 <<<
HloModule m
ENTRY e {{
  ROOT x = f32[8] parameter(0)
}}
>>>
"""


@pytest.mark.parametrize(("more", "says"), [(" sums={1}", "has 1 results"), (" donates={7}", "has 1 operands")])
def test_numbers_of_a_program_are_of_its_arrays(more: str, says: str) -> None:
    text = PROGRAM.format(more=more) + one("%y = @p(%x)", "%x: f32[8] on {0}")
    with pytest.raises(hs.ScheduleError, match=says):
        parse_schedule(text)


ENDLESS = """program @p(s32[] as {replicated}) -> (s32[] as {replicated}) devices=1 <<<
HloModule m
again { x = s32[] parameter(0)
  ROOT always = pred[] constant(true) }
once { ROOT x = s32[] parameter(0) }
ENTRY e { x = s32[] parameter(0)
  ROOT y = s32[] while(x), condition=again, body=once }
>>>
"""


def test_a_program_that_reads_constants_does_not_run_while_it_is_looked_at() -> None:
    step = "%c = constant() value=1 shape=s32[] to={0}\n  %y = @p(%c)"
    schedule = parse_schedule(ENDLESS + one(step))
    assert parse_schedule(schedule.to_text()).simulate(hs.machines.h100(1)).timeline


def test_constants_do_not_grow_while_they_are_looked_at() -> None:
    """Each step has twice the elements of the one before it: 2^40 in the end."""
    steps = "\n".join(f"  %c{n + 1} = concat(%c{n}, %c{n}) dim=0" for n in range(30))
    schedule = parse_schedule(one(f"%c0 = constant() value={{1}} shape=s32[1] to={{0}}\n{steps}"))
    assert schedule.simulate(hs.machines.h100(1)).timeline


def test_a_constant_is_as_large_as_its_text() -> None:
    elements, calls = ",".join(["1"] * 100_000), "\n".join(f"  %y{n} = call @f()" for n in range(2000))
    body = f"func @f() {{\n  %c = constant() value={{{elements}}} shape=s32[100000] to={{0}}\n  return %c\n}}\n"
    began = time.process_time()
    parse_schedule(one(calls) + body)
    assert time.process_time() - began < 2
