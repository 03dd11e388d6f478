"""Dot, and convolution where it is one.  Ties between the two operands are XLA's: look ahead to the user, else by size.

Floor: propagation.  Follows XLA's InferDotShardingFromOperands, InferDotOperandSharding and ParseConvolutionDimsInfo.
The look-ahead needs the graph, so the fix point hands in a function that answers for it (`Receiver.look_ahead`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlosharding.ir import WindowDim
from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, Shardings, wants_others
from hlosharding.propagation.improving import Receiver, improve, partitioned
from hlosharding.propagation.op_view import Edge, Links, OpView, carry, is_partitioned
from hlosharding.sharding import (
    HloSharding,
    is_subtiling_or_equal,
    merge_sharding,
    replicate_on_all_dims_except,
    transpose_sharding,
)

Trio = tuple[int, int, int]
"""One spatial dim's place in left operand, right operand and output."""


@dataclass
class ContractionDims:
    """Which dims of a dot, or of a convolution read as one, are the same extent."""

    to_output: tuple[Links, Links]
    """Of each operand: its batch and free dims, and where they stand in the output."""
    shared: Links
    """Batch and contracted dims of the left operand, and of the right one."""
    spatial: list[Trio] = field(default_factory=list)
    """Real windows: what keeps a convolution from being a dot."""


def contraction_dims(op: OpView) -> ContractionDims:
    """As the op's rule says; for a convolution as XLA reads its windows."""
    return _DIMS[op.opcode](op)


def _dot_dims(op: OpView) -> ContractionDims:
    return ContractionDims((op.links(0), op.links(1)), op.links(0, 1))


def _convolution_dims(op: OpView) -> ContractionDims:
    conv, window = op.instruction.conv_dims, op.instruction.window
    left, right = op.operand_shapes
    roles: dict[str, list[Trio]] = {"batch": [], "contracted": [], "left": [], "right": [], "spatial": []}
    trios = zip(
        conv.input_spatial_dimensions, conv.kernel_spatial_dimensions, conv.output_spatial_dimensions, strict=True
    )
    for trio, wd in zip(trios, window, strict=True):
        roles[_role(left.dims[trio[0]], right.dims[trio[1]], wd)].append(trio)
    kept = [(conv.input_batch_dimension, conv.output_batch_dimension)]
    kept += [(a, out) for a, _, out in roles["batch"] + roles["left"]]
    made = [(conv.kernel_output_feature_dimension, conv.output_feature_dimension)]
    made += [(b, out) for _, b, out in roles["batch"] + roles["right"]]
    shared = [(conv.input_feature_dimension, conv.kernel_input_feature_dimension)]
    shared += [(a, b) for a, b, _ in roles["batch"] + roles["contracted"]]
    return ContractionDims((_links(kept), _links(made)), _links(shared), roles["spatial"])


_DIMS = {"dot": _dot_dims, "convolution": _convolution_dims}


def _links(pairs: list[tuple[int, int]]) -> Links:
    return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)


def _role(left: int, right: int, wd: WindowDim) -> str:
    """A spatial dim that plays a dot's part is known by its window (order matters)."""
    if wd.is_batch_of(left):
        return "batch"
    if left == wd.size and wd.is_undilated and wd.is_unpadded:
        return "contracted"
    if wd.stride != 1 or not wd.is_undilated:
        return "spatial"
    if right == wd.size == 1 and wd.is_unpadded:
        return "left"
    edge = right - 1
    if left == 1 and wd.size == right and wd.padding_low == wd.padding_high == edge and wd.window_reversal:
        return "right"
    return "spatial"


# ---- forward


@FORWARD.register("dot")
def _dot(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    dims = contraction_dims(op)
    offers: list[HloSharding | None] = [None, None]
    for side, source in partitioned(operands[:2]):
        offered = _from_side(op, dims, side, source)
        offers[side] = improve(receiver.sharding, offered, op.shape, combine=receiver.combine)
    left, right = offers
    if left is None or right is None:
        for side, offered in enumerate(offers):
            if offered is not None:
                receiver.set(offered, side)
        return
    first = _winner(op, receiver, left, right)
    receiver.set(right if first else left, first)
    # The one that lost may still refine the winner's tiles, where the two merge.
    receiver.improve(left if first else right, 1 - first)


def _from_side(op: OpView, dims: ContractionDims, side: int, source: HloSharding) -> HloSharding:
    """One operand's batch and free dims, carried to the output; its contracted dims replicated."""
    return carry(source, dims.to_output[side], op.operand_shapes[side].rank, op.rank)


def _winner(op: OpView, receiver: Receiver, left: HloSharding, right: HloSharding) -> int:
    """Which operand goes first: the one that the users ahead agree with alone, else the larger, else the left."""
    ahead = receiver.look_ahead()
    if ahead is not None:
        fits = [is_subtiling_or_equal(op.shape.dims, ahead, s) for s in (left, right)]
        if fits[0] != fits[1]:
            return 0 if fits[0] else 1
    return 1 if op.operand_shapes[0].byte_size < op.operand_shapes[1].byte_size else 0


@FORWARD.register("convolution")
def _convolution(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    dims = contraction_dims(op)
    split = any(_is_split(operands[side], [t[side] for t in dims.spatial]) for side in (0, 1))
    grouped = op.instruction.batch_group_count > 1 or op.instruction.feature_group_count > 1
    if not dims.spatial or not (split or grouped):
        _dot(op, receiver, operands, level)
        return
    source = operands[0]
    if source is None or not is_partitioned(source):
        return
    offered = source if source.is_tile_maximal() else _from_image(op, source)
    if offered is not None:
        receiver.improve(offered, 0)


def _is_split(sharding: HloSharding | None, dims: list[int]) -> bool:
    return sharding is not None and sharding.is_tiled() and any(sharding.num_tiles_along(d) > 1 for d in dims)


def _from_image(op: OpView, source: HloSharding) -> HloSharding | None:
    """A small kernel leaves the image's tiling alone; a large one (a weight gradient) keeps only the batch split."""
    conv = op.instruction.conv_dims
    if not _kernel_is_small(op):
        return replicate_on_all_dims_except(source, (conv.input_batch_dimension,))
    if source.num_tiles_along(conv.input_feature_dimension) > 1:
        return None
    places = {
        conv.output_batch_dimension: conv.input_batch_dimension,
        conv.output_feature_dimension: conv.input_feature_dimension,
        **dict(zip(conv.output_spatial_dimensions, conv.input_spatial_dimensions, strict=True)),
    }
    return transpose_sharding(source, tuple(places[d] for d in range(op.rank)))


def _kernel_is_small(op: OpView) -> bool:
    """XLA's IsConvolutionKernelSmall."""
    conv, kernel = op.instruction.conv_dims, op.operand_shapes[1].dims
    kernel_product = output_product = 1
    spatial = zip(conv.kernel_spatial_dimensions, conv.output_spatial_dimensions, strict=True)
    for n, (k, o) in enumerate(spatial):
        size, out = kernel[k], op.shape.dims[o]
        kernel_product *= size
        output_product *= out
        if size >= out and (n < 2 or size > 3 or kernel_product >= output_product):
            return False
    return True


# ---- backward


@wants_others("dot", "convolution")
def _other_side(op: OpView, positions: tuple[int, ...]) -> tuple[int, ...]:
    return (1 - positions[0],) if positions[0] < 2 else ()


@BACKWARD.register("dot", "convolution")
def _dot_operand(edge: Edge, own: object, user: HloSharding, others: Shardings, level: int) -> HloSharding | None:
    """From the output, merged with what the other operand says about the shared dims."""
    dims = contraction_dims(edge.op)
    if dims.spatial or edge.position > 1:
        return None
    side, rank = edge.position, edge.shape.rank
    operand, output = dims.to_output[side]
    from_output = carry(user, (output, operand), edge.op.rank, rank)
    other = others[0]
    if other is None or not other.is_spatially_partitioned():
        return from_output
    shared = dims.shared[1 - side], dims.shared[side]
    from_other = carry(other, shared, edge.op.operand_shapes[1 - side].rank, rank)
    better, merged = merge_sharding(from_output, from_other, edge.op.spmd and level > 0)
    return merged if better else from_output
