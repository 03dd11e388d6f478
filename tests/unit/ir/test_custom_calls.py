"""What custom calls say of themselves: of cuDNN's flash attention, of the user's partitioning."""

from __future__ import annotations

import pytest

import hlosharding as hs
from hlosharding.ir import FusedAttention, attention_config, custom_partitioning_of, fused_attention
from tests.support.fused_attention import SCALE, Sizes, attention_step


def test_a_call_says_where_its_heads_are_and_what_is_masked() -> None:
    module = attention_step(Sizes())
    there, back = (fused_attention(module.by_name(name)) for name in ("there", "back"))
    assert there == FusedAttention(heads=2, is_backward=False, is_causal=True, is_plain=True, scale=SCALE)
    assert there is not None
    assert back == there._replace(is_backward=True)
    assert there.length == 1
    assert there.scores((8, 256, 8, 64), (8, 128, 4, 64)) == (8, 8, 256, 128)
    assert fused_attention(module.by_name("mixed")) is None


def test_a_window_is_no_plain_mask() -> None:
    text = attention_step(Sizes()).to_hlo_text().replace("mask_type", 'sliding_window_length\\": 64, \\"mask_type')
    found = fused_attention(hs.load(text).by_name("there"))
    assert found is not None
    assert not found.is_plain


def test_the_configuration_of_a_part_differs_in_its_scores_and_its_mask_alone() -> None:
    opaque = attention_step(Sizes()).by_name("there").opaque
    assert attention_config(opaque, (8, 8, 256, 256)) == opaque
    part = opaque.replace('["8", "8", "256", "256"]', '["2", "4", "64", "256"]')
    assert attention_config(opaque, (2, 4, 64, 256)) == part
    assert attention_config(opaque, (2, 4, 64, 256), sees_all=True) == part.replace("CAUSAL", "NO_MASK")


@pytest.mark.parametrize("mark", ["0", "1", "-1", "first", ""])
def test_a_partitioning_that_did_not_come_with_the_module_is_none(mark: str) -> None:
    call = hs.load(f"""HloModule m
    f {{ x = f32[8] parameter(0)  ROOT y = f32[8] tanh(x) }}
    ENTRY e {{
      x = f32[8] parameter(0)
      ROOT call = f32[8] call(x), to_apply=f, frontend_attributes={{hlosharding.custom_partitioning="{mark}"}}
    }}""").by_name("call")
    assert custom_partitioning_of(call) is None
    call.module.partitionings = ("the user's",)
    assert custom_partitioning_of(call) == (None if mark != "0" else "the user's")
