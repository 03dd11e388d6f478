"""Flash attention on devices that have no cuDNN: the calls compute what JAX's own attention does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlosharding as hs
from tests.support.fused_attention import Sizes, attention_step, drawn_operands, on_one_device

SIZES = Sizes(batch=2, length=16, heads=4, shared=2, depth=8, dtype="f32")


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_call_is_computed_with_scores_and_all(is_causal: bool, cpu_devices: list[Any]) -> None:
    program = hs.partition(attention_step(SIZES, is_causal=is_causal), num_partitions=1)
    operands = drawn_operands(SIZES)
    truth = on_one_device(SIZES, operands, is_causal=is_causal)
    for found in (program.run_reference(*operands), program.run(*operands)):
        for ours, theirs in zip(found, truth, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_program_says_both_ways() -> None:
    text = hs.partition(attention_step(SIZES), num_partitions=1).as_python()
    assert "def attention_in_full(" in text
    assert "cpu=lambda *operands: attention_in_full(*operands, heads=2, is_causal=True, scale=0.5" in text
    assert "__cudnn$fmhaSoftmaxBackward" in text
