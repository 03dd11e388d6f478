"""Ops that multiply and add: dot, ragged-dot, convolution.

Floor: rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

from hlosharding.ir import ConvDims, DotDims, Instruction, WindowDim
from hlosharding.rules.signature import Halo, Nothing, Reduce, Signature, SignatureMaker, Whole


def _adds(inst: Instruction) -> Reduce:
    return Reduce("or" if inst.shape.element_type == "pred" else "add")


Places = list[tuple[int, int]]
"""(operand, dim)"""


def dot(inst: Instruction) -> Signature:
    """Batch dims, free dims of either side, and contracted ones, whose pieces are partial sums."""
    return _dot(inst, inst.dot_dims)


def ragged_dot(inst: Instruction) -> Signature:
    """As dot; the ragged dim is addressed by group sizes and is whole, and so is the dim of groups.

    Modes by the role of the ragged dim: free (groups on the right), contracted (groups lead the result), batch.
    """
    dims, ragged, groups = inst.ragged_dims
    return _dot(inst, dims, ragged, groups, _counted(inst, dims, ragged))


def _dot(
    inst: Instruction,
    dims: DotDims,
    ragged: Sequence[int] = (),
    groups: Sequence[int] = (),
    counted: Callable[[int | None], Places] = lambda left: [],
) -> Signature:
    """`counted`: further places of a left dim."""
    make, (left, right) = SignatureMaker(inst), (o.shape for o in inst.operands[:2])
    # In the order of the result's dims, which are counted while these are entered.
    kinds: dict[str, Iterable[tuple[int | None, int | None]]] = {
        "b": zip(dims.lhs_batch, dims.rhs_batch, strict=True),
        "m": ((dim, None) for dim in dims.lhs_free(left.rank)),
        "n": ((None, dim) for dim in dims.rhs_free(right.rank) if dim not in groups),
        "k": zip(dims.lhs_contracting, dims.rhs_contracting, strict=True),
    }
    # With a contracted ragged dim the result starts with the dim of groups.
    out = count(1 if set(ragged) & set(dims.lhs_contracting) else 0)
    for kind, pairs in kinds.items():
        for number, pair in enumerate(pairs):
            at = [(side, dim) for side, dim in enumerate(pair) if dim is not None]
            side, dim = at[0]
            owes = Whole() if pair[0] in ragged else _adds(inst) if kind == "k" else Nothing()
            made = [(0, next(out))] if kind != "k" else ()
            make.factor(f"{kind}{number}", inst.operands[side].shape.dims[dim], at + counted(pair[0]), made, owes=owes)
    return make.build()


def _counted(inst: Instruction, dims: DotDims, ragged: Sequence[int]) -> Callable[[int | None], Places]:
    """Where the group sizes have a left dim: of rank 2 or more, they repeat batch and like dims before it."""
    if inst.operands[2].shape.rank < 2:
        return lambda dim: []
    free = dims.lhs_free(inst.operands[0].shape.rank)
    like = next((kind for kind in (dims.lhs_contracting, free) if set(ragged) & set(kind)), ())
    leading = dims.lhs_batch if like else ()
    order = [*leading, *(like or dims.lhs_batch)]
    before = order[: order.index(ragged[0])]
    return lambda dim: [(2, before.index(dim))] if dim in before else []


def convolution(inst: Instruction) -> Signature:
    """Batch, features and their groups as a dot; spatial dims are windows, unless they only play a dot's part."""
    make, dims = SignatureMaker(inst), inst.conv_dims
    _batch_and_features(make, inst, dims)
    for number, window in enumerate(inst.window):
        _spatial(make, inst, dims, number, window)
    return make.build()


def _batch_and_features(make: SignatureMaker, inst: Instruction, dims: ConvDims) -> None:
    kernel, out = inst.operands[1].shape.dims, inst.shape.dims
    batch_groups, groups = inst.batch_group_count, inst.feature_group_count
    batch, feature = (0, dims.input_batch_dimension), (0, dims.input_feature_dimension)
    kernel_in, kernel_out = (1, dims.kernel_input_feature_dimension), (1, dims.kernel_output_feature_dimension)
    out_batch, out_feature = (0, dims.output_batch_dimension), (0, dims.output_feature_dimension)
    # Groups are the major part of a dim, and each factor is entered as its next minor one: so they come first.
    if batch_groups > 1:
        make.factor("h", batch_groups, [batch, kernel_out], [out_feature])
    make.factor("b", out[dims.output_batch_dimension], [batch], [out_batch])
    if groups > 1:
        make.factor("g", groups, [feature, kernel_out], [out_feature])
    make.factor("k", kernel[dims.kernel_input_feature_dimension], [feature, kernel_in], owes=_adds(inst))
    rest = kernel[dims.kernel_output_feature_dimension] // (groups * batch_groups)
    make.factor("n", rest, [kernel_out], [out_feature])


def _spatial(make: SignatureMaker, inst: Instruction, dims: ConvDims, number: int, window: WindowDim) -> None:
    source, kernel = dims.input_spatial_dimensions[number], dims.kernel_spatial_dimensions[number]
    out = dims.output_spatial_dimensions[number]
    sizes = (inst.operands[0].shape.dims[source], inst.operands[1].shape.dims[kernel], inst.shape.dims[out])
    role = spatial_role(window, sizes[0], sizes[1], sizes[2])
    match role:
        case "batch":
            make.factor(f"b{number}", sizes[2], [(0, source), (1, kernel)], [(0, out)])
        case "contracted":
            make.factor(f"k{number}", sizes[0], [(0, source), (1, kernel)], owes=_adds(inst))
        case "lhs":
            make.factor(f"m{number}", sizes[0], [(0, source)], [(0, out)])
        case "rhs":
            make.factor(f"n{number}", sizes[1], [(1, kernel)], [(0, out)])
        case _:
            make.factor(f"w{number}", sizes[2], [(0, source)], [(0, out)], owes=Halo(number))


def spatial_role(window: WindowDim, size: int, kernel: int, out: int) -> str:
    """The part a spatial dim plays: batch, contracted, lhs, rhs (as in a dot), or window.

    The forms are those that XLA's dot canonicalisation writes and its ParseConvolutionDimsInfo recognises.
    """
    if kernel == 1 and replace(window, window_reversal=False).is_trivial:
        return "lhs"
    if size > 1 and window.is_batch_of(size) and kernel == size and out == size:
        return "batch"
    if window.is_unpadded and window.is_undilated and kernel == size and out == 1:
        return "contracted"
    padded = window.padding_low == window.padding_high == kernel - 1
    if size == 1 and out == kernel and padded and window.is_undilated and window.stride == 1 and window.window_reversal:
        return "rhs"
    return "window"
