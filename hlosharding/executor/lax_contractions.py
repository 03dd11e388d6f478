"""Dot, convolution, FFT and the linear algebra ops that HLO has of its own.

Floor: executor.
"""

from __future__ import annotations

from hlosharding.executor.emit import EMITTERS, EmittedOp, raw
from hlosharding.executor.text import dtype_text, tuple_text
from hlosharding.ir import DotDims, Instruction, WindowDim

_PRECISIONS = {0: "DEFAULT", 1: "HIGH", 2: "HIGHEST"}


def _precision(inst: Instruction) -> str:
    """The `precision=` argument, or "" where all is default."""
    config = inst.proto.precision_config
    codes = tuple(config.operand_precision)
    if not any(codes):
        return ""
    names = [f"lax.Precision.{_PRECISIONS[c]}" for c in codes]
    return f", precision={names[0]}" if len(set(names)) == 1 else f", precision=({', '.join(names)})"


def _has_other_precision(inst: Instruction) -> bool:
    config = inst.proto.precision_config
    return bool(config.algorithm) or any(c not in _PRECISIONS for c in config.operand_precision)


def _result_type(inst: Instruction) -> str:
    """`preferred_element_type=`, said only where the result's type is not the operands'."""
    same = all(o.shape.element_type == inst.shape.element_type for o in inst.operands[:2])
    return "" if same else f", preferred_element_type={dtype_text(inst.shape)}"


def _dims_text(dims: DotDims) -> str:
    contracting = f"({tuple_text(dims.lhs_contracting)}, {tuple_text(dims.rhs_contracting)})"
    return f"({contracting}, ({tuple_text(dims.lhs_batch)}, {tuple_text(dims.rhs_batch)}))"


@EMITTERS.register("dot")
def _dot(op: EmittedOp) -> str:
    inst = op.inst
    if _has_other_precision(inst):
        return raw(op)
    if not inst.operands[0].shape.size and inst.shape.size:
        # A sum of nothing.  XLA's Shardy cannot write a region whose operands are all constants.
        return f"lax.full({tuple_text(inst.shape.dims)}, 0, {dtype_text(inst.shape)})"
    return f"lax.dot_general({op.arg_list}, {_dims_text(inst.dot_dims)}{_precision(inst)}{_result_type(inst)})"


@EMITTERS.register("ragged-dot")
def _ragged_dot(op: EmittedOp) -> str:
    dims, ragged, group = op.inst.ragged_dims
    numbers = f"lax.RaggedDotDimensionNumbers({_dims_text(dims)}, {tuple_text(ragged)}, {tuple_text(group)})"
    return f"lax.ragged_dot_general({op.arg_list}, {numbers}{_precision(op.inst)}{_result_type(op.inst)})"


@EMITTERS.register("convolution")
def _convolution(op: EmittedOp) -> str:
    inst, (lhs, rhs) = op.inst, op.args
    window, dims = inst.window, inst.conv_dims
    if _has_other_precision(inst):
        return raw(op)
    if any(w.window_reversal for w in window):
        flipped = [d for d, w in zip(dims.kernel_spatial_dimensions, window, strict=True) if w.window_reversal]
        rhs = f"lax.rev({rhs}, {tuple_text(flipped)})"
    specs = (
        (dims.input_batch_dimension, dims.input_feature_dimension, *dims.input_spatial_dimensions),
        (dims.kernel_output_feature_dimension, dims.kernel_input_feature_dimension, *dims.kernel_spatial_dimensions),
        (dims.output_batch_dimension, dims.output_feature_dimension, *dims.output_spatial_dimensions),
    )
    sizes = [inst.operands[0].shape.dims[d] for d in dims.input_spatial_dimensions]
    longer = [w.stride * _breaks_xla(w, size) for w, size in zip(window, sizes, strict=True)]
    padding = [(w.padding_low, w.padding_high + more) for w, more in zip(window, longer, strict=True)]
    parts = [
        lhs, rhs, tuple_text([w.stride for w in window]), tuple_text(padding),
        f"lhs_dilation={tuple_text([w.base_dilation for w in window])}",
        f"rhs_dilation={tuple_text([w.window_dilation for w in window])}",
        f"dimension_numbers=lax.ConvDimensionNumbers{tuple_text(specs)}",
    ]  # fmt: skip
    if inst.feature_group_count != 1:
        parts.append(f"feature_group_count={inst.feature_group_count}")
    if inst.batch_group_count != 1:
        parts.append(f"batch_group_count={inst.batch_group_count}")
    made = f"lax.conv_general_dilated({', '.join(parts)}{_precision(inst)}{_result_type(inst)})"
    cut = f"{tuple_text([0] * inst.shape.rank)}, {tuple_text(inst.shape.dims)}"
    return f"lax.slice({made}, {cut})" if any(longer) else made


def _breaks_xla(window: WindowDim, size: int) -> bool:
    """Does XLA end the process at such a window over an input of that size?

    Where it swaps input and kernel it takes such a dim, of any size, for one of groups, and then finds a window of the
    wrong size (jaxlib 0.10.2).  One more element of padding makes one more result, which is cut off.
    """
    is_plain = not window.window_reversal and window.window_dilation == 1
    is_padded = window.padding_low or window.padding_high
    is_taken_for_group = window.size == window.base_dilation == window.stride + 1
    return is_taken_for_group and is_plain and not is_padded and size != window.size


@EMITTERS.register("fft")
def _fft(op: EmittedOp) -> str:
    return f'lax.fft({op.args[0]}, "{op.inst.fft_type}", {tuple_text(op.inst.fft_length)})'


# lax has solvers of its own for the first two, which leave other values in the unused triangle.
EMITTERS.register("triangular-solve", "cholesky", "batch-norm-training", "batch-norm-inference", "batch-norm-grad")(raw)
