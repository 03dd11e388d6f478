"""Calls to cuDNN's flash attention where there is no cuDNN: on CPU devices scores are computed.

Floor: executor.  What a call means stands in `prelude.attention_in_full`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlosharding.executor.prelude import attention_in_full
from hlosharding.ir import Instruction, fused_attention


def is_attention(inst: Instruction) -> bool:
    """Is it a call whose meaning is known: no bias, no dropout, no lengths?"""
    found = fused_attention(inst)
    return found is not None and found.is_plain


def attention_text(inst: Instruction, arguments: str, call: str) -> str:
    """The expression of a call; `call`: that of cuDNN itself."""
    said = ", ".join(f"{name}={value!r}" for name, value in _meaning(inst).items())
    in_full = f"lambda *operands: attention_in_full(*operands, {said})"
    return f"lax.platform_dependent({arguments}, cpu={in_full}, default={call})"


def attend(inst: Instruction, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a call gives, one array a result leaf."""
    return [np.asarray(made) for made in attention_in_full(*arguments, **_meaning(inst))]


def _meaning(inst: Instruction) -> dict[str, Any]:
    found = fused_attention(inst)
    assert found is not None, "asked of attention"
    has_sums = not found.is_backward and len(inst.shape.leaves) == 3
    return {"heads": found.heads, "is_causal": found.is_causal, "scale": found.scale, "has_sums": has_sums}
