"""Send and recv: once, by the device that the program names, its context never taken apart; refused without one."""

from __future__ import annotations

import pytest

from hlosharding import load, partition, verify_partitioned
from hlosharding.errors import PartitionError
from hlosharding.ir import Instruction

TEXT = """HloModule m, num_partitions=8
ENTRY e {{
  a = f32[16] parameter(0), sharding={{devices=[8]<=[8]}}
  t = token[] after-all()
  s = (f32[16], u32[], token[]) send(a, t), channel_id=1, is_host_transfer=true{on}
  d = token[] send-done(s), channel_id=1, is_host_transfer=true
  r = (f32[16], u32[], token[]) recv(d), channel_id=2, is_host_transfer=true{on}
  rd = (f32[16], token[]) recv-done(r), channel_id=2, is_host_transfer=true
  b = f32[16] get-tuple-element(rd), index=0
  ROOT n = f32[16] negate(b), sharding={{devices=[8]<=[8]}}
}}
"""
ON_DEVICE_3 = ", sharding={{maximal device=3}, {maximal device=3}, {maximal device=3}}"


def test_one_device_sends_and_receives_in_a_branch_and_all_get_what_came() -> None:
    local = partition(load(TEXT.format(on=ON_DEVICE_3), format="hlo"))
    verify_partitioned(local.module)
    assert "send-done" in local.to_hlo_text()  # XLA takes it
    (send,) = [i for i in local.module.instructions if i.opcode == "send"]
    (received,) = [i for i in local.module.instructions if i.opcode == "recv-done"]
    assert [u.opcode for u in send.users] == ["send-done"]
    assert received.operands[0].opcode == "recv"
    assert str(send.operands[0].shape) == "f32[16]"
    branches = [_takers(local.module.instructions, i) for i in (send, received)]
    assert branches == [[3], [3]]
    assert [c.kind for c in local.collectives] == ["all-gather", "reduce-scatter"]


def _takers(instructions: list[Instruction], inst: Instruction) -> list[int]:
    """The devices that take the branch in which an instruction stands."""
    (site,) = [i for i in instructions if inst.computation in i.called]
    table = site.operands[0].operands[0].operands[0]
    branch = site.called.index(inst.computation)
    return [device for device, chosen in enumerate(table.literal) if int(chosen) == branch]


@pytest.mark.parametrize("on", ["", ", sharding={{replicated}, {replicated}, {replicated}}"])
def test_a_transfer_of_no_device_is_refused_as_xla_does(on: str) -> None:
    """XLA: "Side-effect HLO must have sharding", and replicated ones it does not support."""
    with pytest.raises(PartitionError, match="would run on each of 8; at %s; give it the sharding"):
        partition(load(TEXT.format(on=on), format="hlo"))


def test_a_context_that_somebody_else_reads_is_refused() -> None:
    text = TEXT.format(on=ON_DEVICE_3).replace("negate(b)", "negate(g)")
    text = text.replace("  b = ", "  g = f32[16] get-tuple-element(s), index=0\n  b = ")
    with pytest.raises(PartitionError, match="%s is not read by exactly one send-done"):
        partition(load(text, format="hlo"))


def test_each_device_of_a_manual_region_has_its_own() -> None:
    manual = ", sharding={{manual}, {manual}, {manual}}"
    text = TEXT.format(on=manual).replace("f32[16] parameter(0), sharding={devices=[8]<=[8]}", "f32[16] parameter(0)")
    text = text.replace("is_host_transfer=true\n", "is_host_transfer=true, sharding={manual}\n", 1)
    text = text.replace("is_host_transfer=true\n", "is_host_transfer=true, sharding={{manual}, {manual}}\n", 1)
    text = text.replace("sharding={devices=[8]<=[8]}", "sharding={manual}")
    text = text.replace("index=0\n", "index=0, sharding={manual}\n")
    text = text.replace("parameter(0)\n", "parameter(0), sharding={manual}\n")
    local = partition(load(text, format="hlo"), num_partitions=8)
    assert [i.opcode for i in local.module.by_name("s").users] == ["send-done"]
    assert local.to_hlo_text()
    assert not local.collectives
