"""Reductions of whole dims, and of windows.

Floor: onnx_ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlosharding.ir import Instruction, PaddingDim, is_neutral, neutral_element, reducer_kind
from hlosharding.onnx_ranks.graph_writer import WRITERS, GraphWriter, no_form
from hlosharding.onnx_ranks.structure import pad

_COMBINE = {"add": "Add", "multiply": "Mul", "maximum": "Max", "minimum": "Min"}
_OF_TRUTH = {"and": "minimum", "or": "maximum", "minimum": "minimum", "maximum": "maximum"}

_SMALL = frozenset({"pred", "s8", "s16", "u8", "u16"})
"""Element types of whole numbers that ONNX's reductions do not take, or not all of them."""


@WRITERS.register("reduce")
def _reduce(out: GraphWriter, inst: Instruction, *operands: str) -> str:
    kind = _kind(inst)
    value, first = operands
    if inst.shape.element_type in _SMALL:
        made = out.cast(out.reduce(kind, out.cast(value, np.int32), inst.dimensions), inst.shape.dtype)
        return made if inst.shape.element_type == "pred" else _with_first(out, inst, kind, made, first)
    return _with_first(out, inst, kind, out.reduce(kind, value, inst.dimensions), first)


def _kind(inst: Instruction) -> str:
    """The kind of a reduction of one array."""
    if inst.shape.is_tuple:
        raise no_form(inst, f"{inst.opcode} of several arrays at once")
    kind = reducer_kind(inst.called[0])
    if inst.shape.element_type == "pred":
        kind = _OF_TRUTH.get(kind, kind)
        if not is_neutral(inst.operands[1], reducer_kind(inst.called[0])):
            raise no_form(inst, f"{inst.opcode} of truth values with a first one")
    if kind not in _COMBINE:
        raise no_form(inst, f"{inst.opcode} by {kind!r}")
    return kind


def _with_first(out: GraphWriter, inst: Instruction, kind: str, made: str, first: str) -> str:
    return made if is_neutral(inst.operands[1], kind) else out.add(_COMBINE[kind], made, first)


@WRITERS.register("reduce-window")
def _reduce_window(out: GraphWriter, inst: Instruction, *operands: str) -> str:
    kind = _kind(inst)
    value, first = operands
    dims, filler = inst.operands[0].shape.dims, neutral_element(kind, inst.shape.element_type)
    if kind == "multiply" or filler is None or not inst.shape.is_floating:
        raise no_form(inst, f"windows of {inst.shape.element_type} reduced by {kind!r}")
    sides = tuple(PaddingDim(w.padding_low, w.padding_high, w.base_dilation - 1) for w in inst.window)
    value = pad(out, value, dims, sides, out.constant(filler))
    padded = [
        (n - 1) * w.base_dilation + 1 + w.padding_low + w.padding_high for n, w in zip(dims, inst.window, strict=True)
    ]
    # ONNX's windows stand behind exactly two dims, batch and channels: dims without a window become the batch.
    lead = next((d for d, w in enumerate(inst.window) if not w.is_trivial), len(dims) - 1)
    value = out.reshape(value, (int(np.prod(padded[:lead], dtype=int)), 1, *padded[lead:]))
    return _with_first(out, inst, kind, out.reshape(_windows(out, inst, kind, value, lead), inst.shape.dims), first)


def _windows(out: GraphWriter, inst: Instruction, kind: str, value: str, lead: int) -> str:
    window = inst.window[lead:]
    sizes = [w.size for w in window]
    how: dict[str, Any] = {
        "kernel_shape": sizes,
        "strides": [w.stride for w in window],
        "dilations": [w.window_dilation for w in window],
    }
    if kind == "add":
        return out.add("Conv", value, out.constant(np.ones((1, 1, *sizes), inst.shape.dtype)), **how)
    # ONNX pools the largest values, not the least.
    if kind == "minimum":
        return out.add("Neg", out.add("MaxPool", out.add("Neg", value), **how))
    return out.add("MaxPool", value, **how)
