"""Single ops against brute force: what XLA writes may be no valid HLO, and is told and left out of its sum."""

from __future__ import annotations

import math

import pytest

from benchmarks import axis_splits, live_xla, op_choice
from hlosharding.xla_bridge import hlo_text_to_proto

_INVALID = """HloModule m, num_partitions=8
ENTRY e {
  x = f32[128,8] parameter(0)
  zero = s32[] constant(0)
  ROOT cut = f32[64,16] dynamic-slice(x, zero, zero), dynamic_slice_sizes={64,16}
}"""
"""So jax 0.10.2 cuts in the case below."""


def test_an_invalid_program_of_xla_is_told_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = hlo_text_to_proto(_INVALID)
    monkeypatch.setattr(live_xla, "partitioned_by", lambda *_, **__: proto)
    specs = (((2, 0), (1,)), ((0,),), ((2, 0), ()))
    case = op_choice.Case("take", op_choice._kinds()["take"], (2, 2, 2), {"c": 16, "n": 256, "r": 16}, specs)
    assert math.isnan(op_choice.of_xla(case, shardy=False))
    assert capsys.readouterr().out.startswith("GSPMD: not a valid HLO module")


def test_sums_leave_out_what_has_no_program() -> None:
    assert axis_splits.ratio_of_sums([(6.0, 4.0), (math.nan, 8.0), (3.0, 2.0)]) == 1.5
