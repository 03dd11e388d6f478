"""Infeed and outfeed of tiles: each device exchanges its own part, in the sizes that it has."""

from __future__ import annotations

import hlosharding as hs
from hlosharding.ir import Instruction
from tests.support.split_programs import mark, split

OUT = "t = token[] after-all()"


def queues(local: hs.Partitioned, opcode: str) -> list[Instruction]:
    return [i for i in local.module.instructions if i.opcode == opcode]


def test_even_tiles_are_given_as_they_are() -> None:
    local = split(f"""
        {OUT}
        x = f32[48,2] parameter(0){mark("[8,1]<=[8]")}
        ROOT o = token[] outfeed(x, t), outfeed_shape=f32[48,2]{mark("[8,1]<=[8]")}""")
    [sent] = queues(local, "outfeed")
    assert sent.operands[0].shape.dims == (6, 2)
    assert "outfeed_shape=f32[6,2]" in local.to_hlo_text()
    assert not local.collectives


def test_uneven_tiles_are_given_without_their_padding() -> None:
    local = split(f"""
        {OUT}
        x = f32[11] parameter(0){mark("[4,2]<=[8] copies")}
        ROOT o = token[] outfeed(x, t), outfeed_shape=f32[11]{mark("[4,2]<=[8] copies")}""")
    assert [i.operands[0].shape.dims for i in queues(local, "outfeed")] == [(3,), (2,)]
    [choice] = queues(local, "conditional")
    assert choice.shape.element_type == "token"
    assert not local.collectives


def test_what_one_device_gives_the_others_do_not() -> None:
    local = split(f"""
        {OUT}
        x = f32[12] parameter(0){mark("")}
        ROOT o = token[] outfeed(x, t), outfeed_shape=f32[12]{mark("maximal device=3")}""")
    [sent] = queues(local, "outfeed")
    assert sent.operands[0].shape.dims == (12,)
    [choice] = queues(local, "conditional")
    assert len(choice.called) == 2


def test_whole_and_split_arrays_are_fed_together() -> None:
    tiles = "{devices=[8,1]<=[8]}, {replicated}"
    local = split(f"""
        t = token[] after-all()
        f = ((f32[15,3], s32[2]), token[]) infeed(t), sharding={{{tiles}, {{replicated}}}}
        x = (f32[15,3], s32[2]) get-tuple-element(f), index=0, sharding={{{tiles}}}
        ROOT y = f32[15,3] get-tuple-element(x), index=0{mark("[8,1]<=[8]")}""")
    fed = [i.shape.tuple_shapes[0].tuple_shapes for i in queues(local, "infeed")]
    assert [(a.dims, b.dims) for a, b in fed] == [((2, 3), (2,)), ((1, 3), (2,))]
    assert not local.collectives
