"""The attributes an op needs when it computes a piece: those that repeat sizes of its operands or result.

Floor: rules.  A piece along factors that owe nothing (or a reduction) is the same op on smaller shapes; its attributes
differ only where HLO writes a size into them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, SliceDim, WindowDim, attention_config, fused_attention
from hlosharding.registry import Registry
from hlosharding.rules.contractions import spatial_role

Sizes = tuple[int, ...]
_local: Registry[str, Callable[[Instruction, Sequence[Sizes], Sizes], dict[str, Any]]] = Registry("local attributes")


def local_attributes(inst: Instruction, operands: Sequence[Sizes], result: Sizes) -> dict[str, Any]:
    """Keyword attributes for `ComputationBuilder.add(..., like=inst, **attributes)` of a piece.

    `operands`: dims of each local operand; `result`: dims of the (first) local result.  Only dims split along factors
    of the signature may differ from the instruction's own.

    >>> from hlosharding.ir import Builder, Shape
    >>> main = Builder("m").computation("main")
    >>> x, i = main.parameter(0, Shape.parse("f32[8,4]")), main.parameter(1, Shape.parse("s32[]"))
    >>> y = main.add("dynamic-slice", Shape.parse("f32[1,4]"), (x, i, i), dynamic_slice_sizes=(1, 4))
    >>> local_attributes(y, [(8, 2), (), ()], (1, 2))
    {'dynamic_slice_sizes': (1, 2)}
    """
    rule = _local.get(inst.opcode)
    return rule(inst, operands, result) if rule is not None else {}


def has_local_attributes(opcode: str) -> bool:
    """May a piece have other attributes than the op?"""
    return opcode in _local


@_local.register("dynamic-slice")
def _dynamic_slice(inst: Instruction, operands: Sequence[Sizes], result: Sizes) -> dict[str, Any]:
    return {"dynamic_slice_sizes": result}


@_local.register("gather")
def _gather(inst: Instruction, operands: Sequence[Sizes], result: Sizes) -> dict[str, Any]:
    whole, local = inst.operands[0].shape.dims, operands[0]
    dims = zip(inst.gather_slice_sizes, whole, local, strict=True)
    return {"gather_slice_sizes": tuple(mine if size == full else size for size, full, mine in dims)}


@_local.register("slice")
def _slice(inst: Instruction, operands: Sequence[Sizes], result: Sizes) -> dict[str, Any]:
    whole, local = inst.operands[0].shape.dims, operands[0]
    dims = zip(inst.slice_dims, whole, local, strict=True)
    return {"slice_dims": tuple(SliceDim(0, mine, 1) if mine != full else s for s, full, mine in dims)}


@_local.register("constant")
def _constant(inst: Instruction, operands: Sequence[Sizes], result: Sizes) -> dict[str, Any]:
    if result == inst.shape.dims:
        return {}
    return {"literal": np.broadcast_to(inst.literal.reshape(-1)[:1], result) if inst.shape.size else np.zeros(result)}


@_local.register("convolution")
def _convolution(inst: Instruction, operands: Sequence[Sizes], result: Sizes) -> dict[str, Any]:
    dims = inst.conv_dims
    batch = _groups(operands[0][dims.input_batch_dimension], result[dims.output_batch_dimension])
    features = _groups(operands[0][dims.input_feature_dimension], operands[1][dims.kernel_input_feature_dimension])
    window = tuple(_local_window(inst, number, w, operands) for number, w in enumerate(inst.window))
    return {"batch_group_count": batch, "feature_group_count": features, "window": window}


def _groups(size: int, of_each: int) -> int:
    """How many groups a dim holds; of an empty one the result is empty, or zeros, in any number of groups."""
    return size // of_each if of_each else 1


def _local_window(inst: Instruction, number: int, window: WindowDim, operands: Sequence[Sizes]) -> WindowDim:
    """A spatial dim that plays a dot's part spells its size in its window."""
    dims = inst.conv_dims
    source, kernel = dims.input_spatial_dimensions[number], dims.kernel_spatial_dimensions[number]
    before, taps = inst.operands[0].shape.dims[source], inst.operands[1].shape.dims[kernel]
    role = spatial_role(window, before, taps, inst.shape.dims[dims.output_spatial_dimensions[number]])
    size, mine = operands[0][source], operands[1][kernel]
    match role:
        case "batch":
            return _batch_window(window, size) if size != before else window
        case "contracted":
            return replace(window, size=size)
        case "rhs":
            return replace(window, size=mine, padding_low=mine - 1, padding_high=mine - 1)
        case _:
            return window


def _batch_window(window: WindowDim, size: int) -> WindowDim:
    # The forms that `WindowDim.is_batch_of` knows, for a batch of another size.  Of a batch of one no window is left.
    if size == 1:
        return WindowDim()
    lag = max(1, size - 1)
    if window.window_reversal:
        return WindowDim(size, size, size - 1, size - 1, 1, lag, True)
    stride = lag if window.stride > 1 else 1
    return WindowDim(size, stride, 0, 0, lag // stride, size)


@_local.register("custom-call")
def _custom_call(inst: Instruction, operands: Sequence[Sizes], result: Sizes) -> dict[str, Any]:
    found = fused_attention(inst)
    if found is None:
        return {}
    return {"opaque": attention_config(inst.opaque, found.scores(operands[0], operands[1]))}
