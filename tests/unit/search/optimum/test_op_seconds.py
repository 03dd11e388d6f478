"""What ops take on a part, against what the partitioned program's ops do."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.partitioner import every_split
from hlosharding.rules import Signature, signature_of
from hlosharding.search.optimum.op_seconds import OpSeconds
from hlosharding.sharding import TileAssignment, without_partials

OPS = {
    "dot": "x = bf16[512,4096] parameter(0)  y = bf16[4096,2048] parameter(1)"
    "  ROOT r = bf16[512,2048] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "batched dot": "x = f32[8,512,256] parameter(0)  y = f32[8,256,512] parameter(1)"
    "  ROOT r = f32[8,512,512] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},"
    " lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    "transpose": "x = f32[4096,2048] parameter(0)  ROOT r = f32[2048,4096] transpose(x), dimensions={1,0}",
}


@pytest.mark.parametrize("name", OPS)
def test_a_part_takes_what_the_local_op_does(name: str) -> None:
    op = hs.load(f"HloModule m\nENTRY e {{ {OPS[name]} }}").entry.root
    # Nothing but products draws more power than the chip may: that is of a program, not of an op.
    signature, machine = signature_of(op), replace(machines.h100(4), sustained=1.0, spread=0.0)
    assert isinstance(signature, Signature)
    seconds = OpSeconds(op.module, machine)
    for split in every_split(op, signature, TileAssignment.from_iota((4,))):
        said = {o.name: place for o, place in zip(op.operands, split.operands, strict=True)}
        placed = hs.annotate(op.module, {**said, op.name: without_partials(split.results[0])})
        local = hs.partition(placed, num_partitions=4, machine=machine).module
        own = [row.time_s for row in hs.cost(local, machine=machine).rows if row.instruction.opcode == op.opcode]
        assert own == pytest.approx([seconds.of_split(op, split)], rel=1e-6), str(split.space)
