"""Modules run as they stand."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError

TEXT = """HloModule m

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4,2], i: s32[]) -> (f32[4,2], s32[], u32[]) {
  %x = f32[4,2]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  %i = s32[] parameter(1)
  %all = f32[4,2] all-reduce(%x), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%sum, use_global_device_ids=true
  %next = s32[] collective-permute(%i), channel_id=2, source_target_pairs={{0,1},{1,0}}
  %me = u32[] partition-id()
  ROOT %t = (f32[4,2]{1,0}, s32[], u32[]) tuple(%all, %next, %me)
}
"""

NEGATE = "HloModule n\nENTRY %e (x: f64[3]) -> f64[3] {\n  %x = f64[3] parameter(0)\n  ROOT %y = f64[3] negate(%x)\n}\n"


def test_a_module_with_collectives_runs_as_it_stands() -> None:
    x = [np.full((4, 2), d, np.float32) for d in range(4)]
    i = [np.int32(10 + d) for d in range(4)]
    total, shifted, me = xla_bridge.run_proto(xla_bridge.hlo_text_to_proto(TEXT), [x, i], num_devices=4)
    assert [t[0, 0] for t in total] == [1, 1, 5, 5]
    assert [int(s) for s in shifted] == [11, 10, 0, 0]
    assert [int(p) for p in me] == [0, 1, 2, 3]


def test_one_device_keeps_64_bits_and_compiles_once() -> None:
    proto = xla_bridge.hlo_text_to_proto(NEGATE)
    ((y,),) = xla_bridge.run_proto(proto, [[np.array([1.0, 1e-300, 3.0])]])
    assert y.dtype == np.float64
    assert y[1] == -1e-300
    assert xla_bridge.compile_proto(proto) is xla_bridge.compile_proto(proto)


def test_too_few_devices_and_wrong_arguments_are_execution_errors() -> None:
    proto = xla_bridge.hlo_text_to_proto(NEGATE)
    with pytest.raises(ExecutionError, match="xla_force_host_platform_device_count=100000"):
        xla_bridge.compile_proto(proto, 100000)
    with pytest.raises(ExecutionError, match="2 local arrays for 1 devices"):
        xla_bridge.run_proto(proto, [[np.ones(3), np.ones(3)]])
    with pytest.raises(ExecutionError):
        xla_bridge.run_proto(proto, [[np.ones(4)]])
