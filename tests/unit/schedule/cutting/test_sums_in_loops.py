"""What of a sum over microbatches may happen in a loop: what is linear in it."""

from __future__ import annotations

import pytest

import hlosharding as hs
from hlosharding.errors import ScheduleError
from hlosharding.ir import Module, NameUniquer
from hlosharding.schedule.cutting.sums_in_loops import move_sums_behind_loops

TEXT = """
HloModule loops
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
going {{
  c = (s32[], f32[4,2], f32[2], f32[4]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  four = s32[] constant(4)
  ROOT less = pred[] compare(n, four), direction=LT
}}
step {{
  c = (s32[], f32[4,2], f32[2], f32[4]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  kept = f32[4,2] get-tuple-element(c), index=1
  own = f32[2] get-tuple-element(c), index=2
  same = f32[4] get-tuple-element(c), index=3
  one = s32[] constant(1)
  next = s32[] add(n, one)
  origin = s32[] constant(0)
  sum = f32[2] all-reduce(own), replica_groups={{{{0,1}}}}, to_apply=add
  {lines}
  ROOT r = (s32[], f32[4,2], f32[2], f32[4]) tuple(next, made, own, same)
}}
ENTRY main {{
  own = f32[2] parameter(0)
  same = f32[4] parameter(1)
  origin = s32[] constant(0)
  zero = f32[] constant({start})
  kept = f32[4,2] broadcast(zero), dimensions={{}}
  c = (s32[], f32[4,2], f32[2], f32[4]) tuple(origin, kept, own, same)
  w = (s32[], f32[4,2], f32[2], f32[4]) while(c), condition=going, body=step
  ROOT made = f32[4,2] get-tuple-element(w), index=1
}}
"""
PUT = "row = f32[1,2] reshape({0})\n made = f32[4,2] dynamic-update-slice(kept, row, n, origin)"
LINEAR = {
    "put into a stack": PUT.format("sum"),
    "scaled by a constant": "s = f32[] constant(3)\n b = f32[2] broadcast(s), dimensions={}\n"
    " t = f32[2] multiply(b, sum)\n" + PUT.format("t"),
    "scaled by what is the same": "s = f32[2] slice(same), slice={[0:2]}\n t = f32[2] divide(sum, s)\n"
    + PUT.format("t"),
    "turned round": "t = f32[2] reverse(sum), dimensions={0}\n" + PUT.format("t"),
    "added up": "b = f32[4,2] broadcast(sum), dimensions={1}\n made = f32[4,2] add(kept, b)",
    "narrow and wide again": "t = f32[2] negate(sum)\n u = f64[2] convert(t)\n v = f64[2] negate(u)\n"
    " w = f32[2] slice(sum), slice={[0:2]}\n" + PUT.format("w"),
}
OTHER = {
    "squared": ("t = f32[2] multiply(sum, sum)\n" + PUT.format("t"), "%t (multiply)"),
    "scaled by its own": ("t = f32[2] multiply(sum, own)\n" + PUT.format("t"), "%t (multiply)"),
    "moved by its own": ("f = f32[1] slice(own), slice={[0:1]}\n g = f32[] reshape(f)\n k = s32[] convert(g)\n"
    " row = f32[1,2] reshape(sum)\n made = f32[4,2] dynamic-update-slice(kept, row, k, origin)", "%made"),
    "plus one": ("s = f32[] constant(1)\n b = f32[2] broadcast(s), dimensions={}\n t = f32[2] add(b, sum)\n"
    + PUT.format("t"), "%t (add)"),
    "a square root": ("t = f32[2] sqrt(sum)\n" + PUT.format("t"), "%t (sqrt)"),
    "narrowed": ("t = f16[2] convert(sum)\n u = f32[2] convert(t)\n" + PUT.format("u"), "%t (convert)"),
    "summed twice": ("t = f32[2] all-reduce(sum), replica_groups={{0,1}}, to_apply=add\n" + PUT.format("t"), "%t (all"),
}  # fmt: skip


def loops(lines: str, start: str = "0") -> Module:
    return hs.load(TEXT.format(lines=lines, start=start)).clone()


@pytest.mark.parametrize("name", LINEAR)
def test_what_is_linear_gives_terms(name: str) -> None:
    module = loops(LINEAR[name])
    [found] = move_sums_behind_loops(module, {0}, NameUniquer())
    assert found is module.entry.root
    assert found.operands[0].opcode == "get-tuple-element"


@pytest.mark.parametrize("name", OTHER)
def test_what_is_not_is_refused(name: str) -> None:
    lines, op = OTHER[name]
    with pytest.raises(ScheduleError) as caught:
        move_sums_behind_loops(loops(lines), {0}, NameUniquer())
    assert op in str(caught.value)


def test_a_stack_that_does_not_begin_with_zeros_is_refused() -> None:
    with pytest.raises(ScheduleError, match="before its loop"):
        move_sums_behind_loops(loops(LINEAR["added up"], start="1"), {0}, NameUniquer())
