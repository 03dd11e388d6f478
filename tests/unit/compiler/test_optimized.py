"""What XLA makes of a program, read back: memory by its own analysis, collectives in any of their forms."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

import hlosharding as hs
from hlosharding import xla_bridge
from hlosharding.compiler import MemoryUse, OptimizedProgram, compile_by_xla, compile_for
from hlosharding.errors import ExecutionError

MLP = Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo"

# As XLA's GPU compiler writes them: joined, asynchronous, and a kind that has no form of its own.
ASYNCHRONOUS = """HloModule m, is_scheduled=true, num_partitions=4
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
apart { p = f32[4,8] parameter(0)
  ROOT q = f32[4,8] all-to-all(p), channel_id=4, replica_groups={{0,1,2,3}}, dimensions={0} }
ENTRY e {
  x = f32[4,8] parameter(0)
  y = s32[2] parameter(1)
  g = ((f32[4,8], s32[2]), (f32[16,8], s32[8])) all-gather-start(x, y), channel_id=1, replica_groups={{0,1,2,3}}, \
dimensions={0}, use_global_device_ids=true
  gd = (f32[16,8], s32[8]) all-gather-done(g)
  z = f32[16,8] get-tuple-element(gd), index=0
  r = (f32[16,8], f32[4,8]) all-reduce-start(z, x), channel_id=2, replica_groups={{0,1},{2,3}}, to_apply=add, \
use_global_device_ids=true
  rd = (f32[16,8], f32[4,8]) all-reduce-done(r)
  w = f32[4,8] get-tuple-element(rd), index=1
  t = ((f32[4,8]), f32[4,8]) async-start(w), calls=apart
  td = f32[4,8] async-done(t)
  p = (f32[4,8], f32[4,8]) collective-permute-start(td), channel_id=5, source_target_pairs={{0,1},{1,2},{2,3}}
  ROOT pd = f32[4,8] collective-permute-done(p)
}"""


def test_collectives_are_read_whatever_their_form() -> None:
    found = OptimizedProgram(ASYNCHRONOUS, MemoryUse(0, 0, 0, 0, 0)).collectives
    received = {one.kind: one.bytes_per_device for one in found}
    assert received == {
        "all-gather": 3 / 4 * (16 * 8 + 8) * 4,
        "all-reduce": 2 * 1 / 2 * (16 * 8 + 4 * 8) * 4,
        "all-to-all": 3 / 4 * 4 * 8 * 4,
        "collective-permute": 3 / 4 * 4 * 8 * 4,  # device 0 receives nothing
    }


def test_our_program_keeps_its_collectives_through_the_compiler() -> None:
    local = hs.partition(hs.load(MLP))
    found = compile_for(local, jax.devices())
    assert found.comm_bytes_per_device == local.comm_bytes_per_device
    # x is split in 2, w1 in 4, w2 is whole.
    assert found.memory.arguments == (64 * 128 // 2 + 128 * 512 // 4 + 512 * 128) * 4
    assert found.memory.peak > found.memory.arguments


@pytest.mark.oracle
def test_xlas_program_is_read_by_the_same_eyes() -> None:
    found = compile_by_xla(hs.load(MLP), jax.devices())
    assert {one.kind for one in found.collectives} == {"all-reduce", "all-gather"}
    assert found.memory.arguments == (64 * 128 // 2 + 128 * 512 // 4 + 512 * 128) * 4


def test_devices_without_a_memory_analysis_are_an_error() -> None:
    silent = SimpleNamespace(as_text=lambda: "", memory_analysis=lambda: None)
    with pytest.raises(ExecutionError, match="no memory analysis"):
        OptimizedProgram.of(silent)


def test_the_peak_is_a_sum_where_xla_does_not_tell_it() -> None:
    stats = SimpleNamespace(
        argument_size_in_bytes=8, output_size_in_bytes=4, alias_size_in_bytes=4, temp_size_in_bytes=16
    )
    assert MemoryUse.of(stats) == MemoryUse(8, 4, 4, 16, 24)


def test_bad_programs_of_xla_are_errors_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("INTERNAL: no")

    fake = SimpleNamespace(id=0, client=SimpleNamespace(compile_and_load=broken))
    monkeypatch.setattr("hlosharding.xla_bridge.topologies.jaxlib", lambda: SimpleNamespace(DeviceList=tuple))
    with pytest.raises(ExecutionError, match="XLA could not compile the module: INTERNAL: no"):
        xla_bridge.compile_with_gspmd(hs.load(MLP).to_hlo_proto(), [fake])
