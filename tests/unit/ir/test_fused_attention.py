"""What a call to cuDNN's flash attention says of itself."""

from __future__ import annotations

from hlosharding.ir import FusedAttention, attention_config, fused_attention
from tests.support.fused_attention import Sizes, attention_step


def test_a_call_says_where_its_heads_are_and_what_is_masked() -> None:
    module = attention_step(Sizes())
    assert fused_attention(module.by_name("there")) == FusedAttention(heads=2, is_backward=False, is_causal=True)
    assert fused_attention(module.by_name("back")) == FusedAttention(heads=2, is_backward=True, is_causal=True)
    assert FusedAttention(2, False, True).length == 1
    assert fused_attention(module.by_name("mixed")) is None


def test_the_configuration_of_a_part_differs_in_its_scores_alone() -> None:
    opaque = attention_step(Sizes()).by_name("there").opaque
    assert attention_config(opaque, 8, 8) == opaque
    assert attention_config(opaque, 2, 4) == opaque.replace('["8", "8", "256", "256"]', '["2", "4", "256", "256"]')
