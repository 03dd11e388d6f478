"""cuDNN's flash attention as JAX calls it: what the call's configuration says of its operands.

Floor: ir.  Queries and keys have dims of batch, length, heads and head_dim, the middle two in either order; results
have heads before length.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from hlosharding.ir import custom_call_targets as targets
from hlosharding.ir.graph import Instruction

_CONFIG = "cudnn_fmha_backend_config"


class FusedAttention(NamedTuple):
    """Of one call."""

    heads: int
    """The dim of heads in queries, keys and values."""
    is_backward: bool
    is_causal: bool
    """Does a query see no later key?"""
    is_plain: bool
    """Does only that, or nothing, keep a query from a key: no lengths of sequences, no window, no bias, no dropout?"""
    scale: float
    """Of scores."""

    @property
    def length(self) -> int:
        """The dim of positions."""
        return 3 - self.heads

    def scores(self, queries: Sequence[int], keys: Sequence[int]) -> tuple[int, ...]:
        """Sequences, heads, queries and keys of operands with such dims."""
        return queries[0], queries[self.heads], queries[self.length], keys[self.length]


_OPERANDS = {targets.FUSED_ATTENTION + "Softmax": 3, targets.FUSED_ATTENTION + "SoftmaxBackward": 6}
"""Queries, keys, values; backward also the sums of the softmax, the result's gradient and the result."""
_NO_MASK, _CAUSAL = "NO_MASK", "CAUSAL"


def fused_attention(inst: Instruction) -> FusedAttention | None:
    """What a call to cuDNN's flash attention computes; None for all else, and for a call that says nothing."""
    if inst.opcode != "custom-call" or not inst.custom_call_target.startswith(targets.FUSED_ATTENTION):
        return None
    is_backward = inst.custom_call_target.endswith(("Backward", "BackwardF8"))
    product = "bmm2_grad_gemm2" if is_backward else "bmm1"
    try:
        config = json.loads(inst.opaque)[_CONFIG]
        heads = int(config[f"{product}_dot_dimension_numbers"]["lhs_batch_dimensions"][1])
    except (ValueError, LookupError, TypeError):
        return None
    mask = str(config.get("mask_type"))
    is_plain = mask in (_NO_MASK, _CAUSAL) and not config.get("sliding_window_length")
    is_plain = is_plain and len(inst.operands) == _OPERANDS.get(inst.custom_call_target)
    scale = float(config.get("fmha_scale", 1))
    return FusedAttention(heads, is_backward, _CAUSAL in mask, is_plain, scale) if heads in (1, 2) else None


def attention_config(opaque: str, scores: Sequence[int], *, sees_all: bool = False) -> str:
    """The configuration of a call with such scores (sequences, heads, queries, keys); `sees_all`: without a mask."""
    whole: dict[str, Any] = json.loads(opaque)
    config = whole[_CONFIG]
    config["intermediate_tensor_shape"]["dimensions"] = list(map(str, scores))
    if sees_all:
        config["mask_type"] = _NO_MASK
    return json.dumps(whole)
