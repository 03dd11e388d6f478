"""cuDNN's flash attention as JAX calls it: what the call's configuration says of its operands.

Floor: ir.  Queries and keys have dims of batch, length, heads and head_dim, the middle two in either order; results
have heads before length.
"""

from __future__ import annotations

import json
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

    @property
    def length(self) -> int:
        """The dim of positions."""
        return 3 - self.heads


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
    return FusedAttention(heads, is_backward, "CAUSAL" in str(config.get("mask_type"))) if heads in (1, 2) else None


def attention_config(opaque: str, batch: int, heads: int) -> str:
    """The configuration of a call on so many sequences and heads."""
    whole: dict[str, Any] = json.loads(opaque)
    scores = whole[_CONFIG]["intermediate_tensor_shape"]
    scores["dimensions"] = [str(batch), str(heads), *scores["dimensions"][2:]]
    return json.dumps(whole)
