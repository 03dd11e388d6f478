"""The largest k of a dim, by whatever op."""

from __future__ import annotations

import hlosharding as hs
from hlosharding.ir import Instruction
from hlosharding.rules import top_k


def test_the_largest_k_is_told_from_other_calls() -> None:
    def first(text: str) -> Instruction:
        module = hs.load(f"HloModule m\nENTRY e {{ x = f32[4,9] parameter(0)\n ROOT y = {text} }}", format="hlo")
        return module.entry.root

    least = top_k(first("(f32[4,2], s32[4,2]) topk(x), k=2, largest=false"))
    assert least is not None
    assert (least.k, least.largest) == (2, False)
    called = top_k(first('(f32[4,3], s32[4,3]) custom-call(x), custom_call_target="TopK"'))
    assert called is not None
    assert (called.k, called.largest) == (3, True)
    assert top_k(first("f32[4,9] negate(x)")) is None
