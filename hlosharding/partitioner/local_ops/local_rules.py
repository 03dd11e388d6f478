"""What each op can do on one device's tiles: one table, one row an opcode.

Floor: partitioner.  An opcode without a row is the same op on local shapes, along factors that owe nothing or a
reduction.  A new op whose local part is more than that gets a row here, and a function in a file of its family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlosharding.ir import ELEMENTWISE, Instruction
from hlosharding.partitioner.local_ops.custom_reduction import (
    BY_OWN_REDUCER,
    TOP_K,
    CustomReduction,
    candidates_signature,
    emit_top_k,
)
from hlosharding.partitioner.local_ops.dynamic_slices import emit_dynamic_slice, emit_dynamic_update_slice
from hlosharding.partitioner.local_ops.gather_scatter import emit_gather, emit_scatter
from hlosharding.partitioner.local_ops.local_op import EmitLocal, emit_broadcast, emit_reduce, emit_same_op
from hlosharding.partitioner.local_ops.windowed_ops import (
    WindowedFactors,
    convolution_factors,
    emit_convolution,
    emit_reduce_window,
    emit_select_and_scatter,
    reduce_window_factors,
    selection_factors,
    taps_signature,
)
from hlosharding.rules import Signature, iota_signature
from hlosharding.sharding import HloSharding


def _iota_signature(inst: Instruction, signature: Signature, x: HloSharding | None) -> Signature | None:
    return iota_signature(inst, signature)


def _taps_signature(inst: Instruction, signature: Signature, x: HloSharding | None) -> Signature | None:
    return taps_signature(inst, signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRule:
    """What an op can do on tiles."""

    emit: EmitLocal = emit_same_op
    """Writes one device's part of the op."""
    keeps_broadcast_dims: bool = False
    """Does it compute alike at every place of a dim, so that the result is constant where all operands are?"""
    shifts_indices: bool = False
    """Can it shift index values to the device's own rows, so that factors they address may be split?"""
    windows: Callable[[Instruction, Signature], WindowedFactors] | None = None
    """Per factor the window it runs over, where it can exchange halos, so that factors that owe them may be split."""
    alternative: Callable[[Instruction, Signature, HloSharding | None], Signature | None] | None = None
    """An alternative signature: another set of factors the op may be split along, given operand 0's sharding."""
    custom_reduction: CustomReduction | None = None
    """How it combines partial results that are no plain sum, maximum and so on."""
    has_collective_matmul: bool = False
    """Can it be a loop that overlaps communication (`collective_matmul`)?"""


_ELEMENTWISE = LocalRule(keeps_broadcast_dims=True)
_DEFAULT = LocalRule()

LOCAL_RULES: dict[str, LocalRule] = dict.fromkeys(ELEMENTWISE, _ELEMENTWISE) | {
    "bitcast-convert": LocalRule(),  # bits of one number are no places that compute alike
    "broadcast": LocalRule(emit=emit_broadcast, keeps_broadcast_dims=True),
    "convolution": LocalRule(emit=emit_convolution, windows=convolution_factors, alternative=_taps_signature),
    "custom-call": LocalRule(emit=emit_top_k, alternative=candidates_signature, custom_reduction=TOP_K),
    "dot": LocalRule(keeps_broadcast_dims=True, has_collective_matmul=True),
    "dynamic-slice": LocalRule(emit=emit_dynamic_slice, shifts_indices=True),
    "dynamic-update-slice": LocalRule(emit=emit_dynamic_update_slice, shifts_indices=True),
    "gather": LocalRule(emit=emit_gather, shifts_indices=True, alternative=_iota_signature),
    "reduce": LocalRule(emit=emit_reduce, keeps_broadcast_dims=True, custom_reduction=BY_OWN_REDUCER),
    "reduce-window": LocalRule(emit=emit_reduce_window, windows=reduce_window_factors),
    "scatter": LocalRule(emit=emit_scatter, shifts_indices=True, alternative=_iota_signature),
    "select-and-scatter": LocalRule(emit=emit_select_and_scatter, windows=selection_factors),
    "topk": LocalRule(emit=emit_top_k, alternative=candidates_signature, custom_reduction=TOP_K),
    "transpose": _ELEMENTWISE,
}


def local_rule(opcode: str) -> LocalRule:
    """What an op can do on tiles.

    >>> local_rule("add").keeps_broadcast_dims, local_rule("gather").shifts_indices, local_rule("sort").shifts_indices
    (True, True, False)
    """
    return LOCAL_RULES.get(opcode, _DEFAULT)


def custom_reduction_of(inst: Instruction) -> CustomReduction | None:
    """How the op combines partial results that are no plain sum; None where it cannot."""
    reduction = local_rule(inst.opcode).custom_reduction
    return reduction if reduction is not None and reduction.applies(inst) else None
