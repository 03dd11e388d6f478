"""Optimized modules (a GPU's: fusions, async pairs, tiled layouts, schedules) are read, counted and shown."""

from __future__ import annotations

from hlosharding.frontends import load

TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=4

%fused (p0: bf16[128,64], p1: bf16[128,64]) -> bf16[128,64] {
  %p0 = bf16[128,64]{1,0:T(8,128)(2,1)} parameter(0)
  %p1 = bf16[128,64]{1,0} parameter(1)
  ROOT %sum = bf16[128,64]{1,0} add(%p0, %p1)
}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}

ENTRY %main (x: bf16[128,64], w: bf16[64,32]) -> (bf16[128,32], f32[8]) {
  %x = bf16[128,64]{1,0} parameter(0)
  %w = bf16[64,32]{1,0} parameter(1)
  %fusion = bf16[128,64]{1,0} fusion(%x, %x), kind=kLoop, calls=%fused
  %gemm = (bf16[128,32]{1,0}, s8[64]{0}) custom-call(%fusion, %w), custom_call_target="gemm", backend_config={"beta":0}
  %out = bf16[128,32]{1,0} get-tuple-element(%gemm), index=0
  %zero = f32[8]{0} constant({0,0,0,0,0,0,0,0})
  %half = f32[2]{0} slice(%zero), slice={[0:2]}
  %start = f32[8]{0} all-reduce-start(%zero), channel_id=1, replica_groups=[2,2]<=[4], to_apply=%add
  %done = f32[8]{0} all-reduce-done(%start)
  %gathered = (f32[2]{0}, f32[8]{0}) all-gather-start(%half), replica_groups={{0,1,2,3}}, dimensions={0}
  %full = f32[8]{0} all-gather-done(%gathered)
  %copied = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(%full)
  %host = f32[8]{0:S(5)} copy-done(%copied)
  %total = f32[8]{0} add(%done, %full)
  ROOT %t = (bf16[128,32]{1,0}, f32[8]{0}) tuple(%out, %total)
}
"""


def test_an_optimized_module_is_read_and_goes_round() -> None:
    module = load(TEXT)
    opcodes = [i.opcode for i in module.entry.instructions]
    assert module.num_partitions == 4
    assert {"fusion", "all-reduce-start", "all-reduce-done", "all-gather-start", "copy-start"} <= set(opcodes)
    assert module.by_name("start").replica_groups == ((0, 1), (2, 3))
    assert module.by_name("gemm").opaque.startswith("{")
    again = load(load(module.to_hlo_proto()).to_hlo_text())
    assert sorted(i.opcode for i in again.instructions) == sorted(i.opcode for i in module.instructions)


def test_layouts_and_memory_spaces_survive() -> None:
    text = load(TEXT).to_hlo_text()
    assert "{1,0:T(8,128)(2,1)}" in text
    assert "{0:S(5)}" in text


def test_replica_groups_as_meshes_are_read() -> None:
    text = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[8] parameter(0)
  ROOT y = f32[8] all-reduce(x), channel_id=1, replica_groups=mesh['a'=2,'b'=4] {'b'}, to_apply=add
}"""
    assert load(text).by_name("y").replica_groups == ((0, 1, 2, 3), (4, 5, 6, 7))
