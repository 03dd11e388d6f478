"""Products and convolutions.

Floor: onnx_ranks.
"""

from __future__ import annotations

from string import ascii_letters

import numpy as np

from hlosharding.ir import Instruction, PaddingDim
from hlosharding.onnx_ranks.graph_writer import WRITERS, GraphWriter, no_form
from hlosharding.onnx_ranks.structure import pad, reverse

_WIDE = {**dict.fromkeys(("s8", "s16", "u8", "u16"), np.int32), "bf16": np.float32}
"""As what element types are multiplied that ONNX's products do not take."""


@WRITERS.register("dot")
def _dot(out: GraphWriter, inst: Instruction, *operands: str) -> str:
    is_matmul, element = _is_matmul(inst), inst.shape.element_type
    wide = None if is_matmul and element == "bf16" else _WIDE.get(element)  # `MatMul` takes bf16, `Einsum` does not
    left, right = (v if wide is None else out.cast(v, wide) for v in _in_type(out, inst, operands))
    made = out.add("MatMul", left, right) if is_matmul else out.add("Einsum", left, right, equation=_equation(inst))
    return made if wide is None else out.cast(made, inst.shape.dtype)


def _in_type(out: GraphWriter, inst: Instruction, operands: tuple[str, ...]) -> list[str]:
    """The operands in the type of the result, in which HLO adds up."""
    if inst.shape.element_type == "pred" or (inst.opcode == "convolution" and not inst.shape.is_floating):
        raise no_form(inst, f"a {inst.opcode} of {inst.shape.element_type}")
    pairs = zip(operands, inst.operands, strict=True)
    wanted = inst.shape.element_type
    return [v if o.shape.element_type == wanted else out.cast(v, inst.shape.dtype) for v, o in pairs]


def _is_matmul(inst: Instruction) -> bool:
    """Do batch dims come first on both sides, then rows and columns as `MatMul` has them?"""
    dims, rank = inst.dot_dims, inst.operands[0].shape.rank
    batch = tuple(range(rank - 2))
    in_place = (dims.lhs_contracting, dims.rhs_contracting) == ((rank - 1,), (rank - 2,))
    return in_place and inst.operands[1].shape.rank == rank and (dims.lhs_batch, dims.rhs_batch) == (batch, batch)


def _equation(inst: Instruction) -> str:
    dims, (left, right) = inst.dot_dims, (list(ascii_letters[: o.shape.rank]) for o in inst.operands)
    # Other letters on the right: only dims that are paired may share one.
    right = [letter.upper() for letter in right]
    both = zip(dims.lhs_batch + dims.lhs_contracting, dims.rhs_batch + dims.rhs_contracting, strict=True)
    for ours, theirs in both:
        right[theirs] = left[ours]
    batch = [left[d] for d in dims.lhs_batch]
    free = [left[d] for d in dims.lhs_free(len(left))] + [right[d] for d in dims.rhs_free(len(right))]
    return f"{''.join(left)},{''.join(right)}->{''.join(batch + free)}"


@WRITERS.register("convolution")
def _convolution(out: GraphWriter, inst: Instruction, *operands: str) -> str:
    if inst.batch_group_count > 1:
        raise no_form(inst, "a convolution in groups of the batch")
    (image, kernel), dims, window = _in_type(out, inst, operands), inst.conv_dims, inst.window
    order = (dims.input_batch_dimension, dims.input_feature_dimension, *dims.input_spatial_dimensions)
    sizes = tuple(inst.operands[0].shape.dims[d] for d in order)
    # Padded apart: ONNX's Conv has no gaps between elements of the image, and no pads below zero.
    outside = [(0, 0, 0), (0, 0, 0), *((w.padding_low, w.padding_high, w.base_dilation - 1) for w in window)]
    zero = out.constant(np.zeros((), inst.shape.dtype))
    image = pad(out, out.transpose(image, order), sizes, tuple(PaddingDim(*p) for p in outside), zero)
    spatial = dims.kernel_spatial_dimensions
    kernel = out.transpose(
        kernel, (dims.kernel_output_feature_dimension, dims.kernel_input_feature_dimension, *spatial)
    )
    for axis, w in enumerate(window):
        kernel = reverse(out, kernel, axis + 2) if w.window_reversal else kernel
    made = out.add(
        "Conv", image, kernel, group=inst.feature_group_count, kernel_shape=[w.size for w in window],
        strides=[w.stride for w in window], dilations=[w.window_dilation for w in window],
    )  # fmt: skip
    written = (dims.output_batch_dimension, dims.output_feature_dimension, *dims.output_spatial_dimensions)
    return out.transpose(made, [written.index(d) for d in range(len(written))])
