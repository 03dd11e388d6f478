"""HLO scans over split operands: right on eight devices, their steps on local slices."""

from __future__ import annotations

import pytest

from tests.support.split_programs import mark, opcodes, right

TWO = "(f32[3,8,16], f32[8,16], s32[])"
STEP = """step { x = f32[8,16] parameter(0)  n = f32[16] parameter(1)
  c = f32[8,16] parameter(2)  k = s32[] parameter(3)
  half = f32[] constant(0.5)  halves = f32[8,16] broadcast(half), dimensions={}  less = f32[8,16] multiply(c, halves)
  row = f32[8,16] broadcast(n), dimensions={1}  d = f32[8,16] subtract(x, less)  e = f32[8,16] add(d, row)
  one = s32[] constant(1)  j = s32[] add(k, one)  y = f32[8,16] tanh(d)
  ROOT r = (f32[8,16], f32[8,16], s32[]) tuple(y, e, j) }"""


def scan(x: str | None, c: str | None, result: str = "", more: str = "") -> str:
    return f"""
        x = f32[3,8,16] parameter(0){mark(x)}
        n = f32[3,16] parameter(1)
        c = f32[8,16] parameter(2){mark(c)}
        zero = s32[] constant(0)
        ROOT s = {TWO} scan(x, n, c, zero), dimensions={{0}}, num_carries=2{more}, to_apply=step{result}"""


@pytest.mark.parametrize("more", ["", ", is_reverse=true"])
@pytest.mark.parametrize(
    ("x", "c"),
    [
        ("[1,8,1]<=[8]", "[8,1]<=[8]"),
        ("[1,2,4]<=[8]", "[2,4]<=[8]"),
        ("[1,1,8]<=[8]", None),
        (None, "[4,2]<=[2,4]T(1,0)"),
    ],
)
def test_slices_and_carries_keep_their_splits(x: str | None, c: str | None, more: str) -> None:
    local = right(scan(x, c, more=more), computations=STEP)
    assert local.warnings == ()
    inside = {i.opcode for comp in local.module.computations if not comp.is_entry for i in comp.instructions}
    assert not inside & {"all-gather", "all-to-all", "collective-permute", "all-reduce"}
    assert "scan" not in opcodes(local)


def test_results_in_the_splits_of_the_step_need_no_collective() -> None:
    rows = "devices=[1,8,1]<=[8]"
    result = f", sharding={{{{{rows}}}, {{devices=[8,1]<=[8]}}, {{replicated}}}}"
    local = right(scan("[1,8,1]<=[8]", "[8,1]<=[8]", result), computations=STEP)
    assert local.collectives == []


@pytest.mark.parametrize("tiling", ["[8,1,1]<=[8]", "[2,4,1]<=[8]"])
def test_the_scanned_dim_is_made_whole(tiling: str) -> None:
    local = right(scan(tiling, None), computations=STEP)
    assert local.warnings == ()
    assert all(c.executions == 1 for c in local.collectives)


def test_a_sum_inside_the_step_is_made_every_time() -> None:
    step = """step { x = f32[4,8] parameter(0)  c = f32[4] parameter(1)  zero = f32[] constant(0)
      s = f32[4] reduce(x, zero), dimensions={1}, to_apply=add_f32  d = f32[4] add(s, c)
      ROOT r = (f32[4], f32[4]) tuple(d, d) }"""
    body = f"""x = f32[4,5,8] parameter(0){mark("[1,1,8]<=[8]")}
        c = f32[4] parameter(1)
        ROOT s = (f32[4,5], f32[4]) scan(x, c), dimensions={{1}}, num_carries=1, to_apply=step"""
    local = right(body, computations=step)
    assert [(c.kind, c.executions) for c in local.collectives] == [("all-reduce", 5)]


def test_uneven_splits() -> None:
    step = """step { x = f32[13] parameter(0)  c = f32[13] parameter(1)  zero = f32[] constant(0)
      s = f32[] reduce(x, zero), dimensions={0}, to_apply=add_f32  b = f32[13] broadcast(s), dimensions={}
      d = f32[13] subtract(b, c)  ROOT r = (f32[13], f32[13]) tuple(d, x) }"""
    body = f"""x = f32[3,13] parameter(0){mark("[1,8]<=[8]")}
        c = f32[13] parameter(1){mark("[8]<=[8]")}
        ROOT s = (f32[3,13], f32[13]) scan(x, c), dimensions={{0}}, num_carries=1, to_apply=step"""
    assert right(body, computations=step).warnings == ()
