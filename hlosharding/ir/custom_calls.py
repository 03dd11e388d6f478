"""What custom calls and frontend attributes say: memories and processors, marks of tracing, open dims, flash attention.

Floor: ir.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from hlosharding.errors import PropagationError
from hlosharding.ir import custom_call_targets as targets
from hlosharding.ir.custom_call_targets import Memory
from hlosharding.ir.graph import Instruction

# ---- which memory a custom call moves a value to, and which processor runs an op: JAX's marks and what XLA makes of
# them
#
# The names are those of XLA's ConvertMemoryPlacementToInternalAnnotations.


_KINDS: dict[str, Memory] = {"pinned_host": "host", "unpinned_host": "host", "device": "device"}
_MEMORIES: dict[str, Memory] = {target: memory for memory, target in targets.MOVE_TARGETS.items()}


def named_memory(inst: Instruction) -> str | None:
    """The kind of memory that a placement mark names; None for a mark that names none, and for other instructions."""
    if inst.opcode != "custom-call" or inst.custom_call_target != targets.PLACEMENT_MARK:
        return None
    return inst.frontend_attributes.get("_xla_buffer_placement")


def memory_of(inst: Instruction) -> Memory | None:
    """`host` or `device` for a call that moves its operand there, else None."""
    if inst.opcode != "custom-call":
        return None
    return _MEMORIES.get(inst.custom_call_target) or _KINDS.get(named_memory(inst) or "")


def processor_of(inst: Instruction) -> str | None:
    """The processor that an op is to run on (`host` under JAX's `compute_on`); None for the device's own."""
    if not inst.proto.frontend_attributes.map:  # asked of every instruction: most have none
        return None
    return inst.frontend_attributes.get("_xla_compute_type")


# ---- frontend attributes with which tracing marks calls for the partitioner


PARTITIONING_MARK: Final = "hlosharding.custom_partitioning"
"""A call of a function under `custom_partitioning`: the place of what the user gave in `Module.partitionings`."""
RULE_MARK: Final = "xla.sdy.sharding_rule"
"""Shardy's rule of a call, as Shardy itself exports it."""


def is_custom_partitioning(inst: Instruction) -> bool:
    """Is it the call of a function under `custom_partitioning`?"""
    return inst.proto.HasField("frontend_attributes") and PARTITIONING_MARK in inst.frontend_attributes


def custom_partitioning_of(inst: Instruction) -> Any:
    """What the user gave with the called function; None where the module came without it (from a file)."""
    # Compared as text: in a stranger's file the mark may be anything.
    place, given = inst.frontend_attributes[PARTITIONING_MARK], inst.module.partitionings
    return next((one for number, one in enumerate(given) if str(number) == place), None)


# ---- the open dims of a `Sharding` call, those that propagation may split further
#
# XLA spells them in the call's opaque string.


# Possessive, so that a stranger's text takes linear time; ASCII digits alone, and no more of them than 32 bits hold.
_UNSPECIFIED = re.compile(r"\s*+unspecified_dims\s*+=\s*+\[[\s,]*+((?:-?[0-9]{1,9}(?:[\s,]++|(?=\])))*+)\]\s*+,?")


def unspecified_dims(opaque: str) -> tuple[int, ...]:
    """The open dims that a `Sharding` call's opaque string names, sorted.

    >>> unspecified_dims("unspecified_dims=[2,0]")
    (0, 2)
    """
    place, end, dims = 0, len(opaque.rstrip()), []
    while place < end:
        match = _UNSPECIFIED.match(opaque, place)
        if not match:
            raise PropagationError(
                f"cannot read the sharding attributes {opaque[:200]!r}",
                remedy='write them like "unspecified_dims=[0,2]"',
            )
        dims += [int(d) for d in match.group(1).replace(",", " ").split()]
        place = match.end()
    return tuple(sorted(dims))


def is_sharding_call(inst: Instruction) -> bool:
    """Does an op only say how values lie?"""
    return inst.opcode == "custom-call" and inst.custom_call_target == targets.SHARDING


def open_dims_of(inst: Instruction) -> tuple[int, ...]:
    """The dims that a `Sharding` call leaves open; none of other instructions."""
    return unspecified_dims(inst.opaque) if is_sharding_call(inst) else ()


def unspecified_dims_text(open_dims: Iterable[int]) -> str:
    """The opaque string of a `Sharding` call with these open dims.

    >>> unspecified_dims_text((0, 2))
    'unspecified_dims=[0,2]'
    """
    return f"unspecified_dims=[{','.join(map(str, open_dims))}]"


# ---- cuDNN's flash attention as JAX calls it: what the call's configuration says of its operands
#
# Queries and keys have dims of batch, length, heads and head_dim, the middle two in either order; results have heads
# before length.


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
    # Others are no call of JAX's: `length` takes the two dims for 1 and 2.
    return FusedAttention(heads, is_backward, _CAUSAL in mask, is_plain, scale) if heads in (1, 2) else None


def attention_config(opaque: str, scores: Sequence[int], *, sees_all: bool = False) -> str:
    """The configuration of a call with such scores (sequences, heads, queries, keys); `sees_all`: without a mask."""
    whole: dict[str, Any] = json.loads(opaque)
    config = whole[_CONFIG]
    config["intermediate_tensor_shape"]["dimensions"] = list(map(str, scores))
    if sees_all:
        config["mask_type"] = _NO_MASK
    return json.dumps(whole)
