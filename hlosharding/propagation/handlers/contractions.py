"""Dot, and convolution where it is one.  Ties between the two operands are XLA's: look ahead to the user, else by size.

Floor: propagation.  Follows XLA's InferDotShardingFromOperands, InferDotOperandSharding and ParseConvolutionDimsInfo.
The look-ahead needs the graph, so the fix point hands in a function that answers for it (`Receiver.look_ahead`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from hlosharding.ir import WindowDim
from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, Shardings, wants_others
from hlosharding.propagation.improving import Receiver, improve
from hlosharding.propagation.op import Edge, Op, partitioned
from hlosharding.sharding import (
    HloSharding,
    along_dims,
    is_subtiling_or_equal,
    merge_sharding,
    replicate_on_all_dims_except,
    transpose_sharding,
)

Trio = tuple[int, int, int]
"""One dim's place in left operand, right operand and output; -1 where it has none."""


@dataclass
class ContractionDims:
    """The role of every dim of a dot, or of a convolution read as one."""

    batch: list[Trio] = field(default_factory=list)
    contracting: list[Trio] = field(default_factory=list)
    left_free: list[Trio] = field(default_factory=list)
    right_free: list[Trio] = field(default_factory=list)
    spatial: list[Trio] = field(default_factory=list)
    """Real windows: what keeps a convolution from being a dot."""

    def free(self, side: int) -> list[Trio]:
        """The dims that only operand `side` and the output have."""
        return self.right_free if side else self.left_free


def contraction_dims(op: Op) -> ContractionDims:
    """The roles of `op`'s dims, found once for all ops that look like it."""
    return _dims_of(op)


@lru_cache(maxsize=4096)
def _dims_of(op: Op) -> ContractionDims:
    return _dot_dims(op) if op.opcode == "dot" else _convolution_dims(op)


def _dot_dims(op: Op) -> ContractionDims:
    dot, (left, right) = op.instruction.dot_dims, op.operand_shapes
    batch = [(a, b, n) for n, (a, b) in enumerate(zip(dot.lhs_batch, dot.rhs_batch, strict=True))]
    left_free = [(d, -1, len(batch) + n) for n, d in enumerate(dot.lhs_free(left.rank))]
    first = len(batch) + len(left_free)
    right_free = [(-1, d, first + n) for n, d in enumerate(dot.rhs_free(right.rank))]
    contracting = [(a, b, -1) for a, b in zip(dot.lhs_contracting, dot.rhs_contracting, strict=True)]
    return ContractionDims(batch, contracting, left_free, right_free)


def _convolution_dims(op: Op) -> ContractionDims:
    conv, window = op.instruction.conv_dims, op.instruction.window
    left, right = op.operand_shapes
    dims = ContractionDims()
    dims.left_free.append((conv.input_batch_dimension, -1, conv.output_batch_dimension))
    dims.right_free.append((-1, conv.kernel_output_feature_dimension, conv.output_feature_dimension))
    dims.contracting.append((conv.input_feature_dimension, conv.kernel_input_feature_dimension, -1))
    spatial = zip(
        conv.input_spatial_dimensions, conv.kernel_spatial_dimensions, conv.output_spatial_dimensions, strict=True
    )
    for trio, wd in zip(spatial, window, strict=True):
        _role(dims, left.dims[trio[0]], right.dims[trio[1]], wd).append(trio)
    return dims


def _role(dims: ContractionDims, left: int, right: int, wd: WindowDim) -> list[Trio]:
    """A spatial dim that plays a dot's part is known by its window (order matters)."""
    unpadded = wd.padding_low == wd.padding_high == 0 and not wd.window_reversal
    undilated = wd.base_dilation == wd.window_dilation == 1
    if _is_batch(left, wd, unpadded):
        return dims.batch
    if left == wd.size and undilated and unpadded:
        return dims.contracting
    if wd.stride != 1 or not undilated:
        return dims.spatial
    if right == wd.size == 1 and unpadded:
        return dims.left_free
    edge = right - 1
    if left == 1 and wd.size == right and wd.padding_low == wd.padding_high == edge and wd.window_reversal:
        return dims.right_free
    return dims.spatial


def _is_batch(left: int, wd: WindowDim, unpadded: bool) -> bool:
    if left != wd.size:
        return False
    steps = (wd.stride, wd.window_dilation)
    apart = max(1, left - 1)
    if left == wd.base_dilation and unpadded and steps in ((apart, 1), (1, apart)):
        return True
    padded = wd.padding_low == wd.padding_high == left - 1 and wd.window_reversal
    return padded and wd.window_dilation == 1 and wd.stride == left and wd.base_dilation == left - 1


# ---- forward


@FORWARD.register("dot")
def _dot(op: Op, receiver: Receiver, operands: Shardings, level: int) -> None:
    dims = contraction_dims(op)
    offers: list[HloSharding | None] = [None, None]
    for side, source in enumerate(operands[:2]):
        if source is not None and source.is_spatially_partitioned():
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
    receiver.improve(left if first else right, 1 - first)


def _from_side(op: Op, dims: ContractionDims, side: int, source: HloSharding) -> HloSharding:
    """One operand's batch and free dims, carried to the output; its contracted dims replicated."""
    carried = [(t[side], t[2]) for t in (*dims.batch, *dims.free(side))]
    return along_dims(source, tuple(a for a, _ in carried), tuple(b for _, b in carried), op.rank)


def _winner(op: Op, receiver: Receiver, left: HloSharding, right: HloSharding) -> int:
    """Which operand goes first: the one that the users ahead agree with alone, else the larger, else the left."""
    ahead = receiver.look_ahead()
    if ahead is not None:
        fits = [is_subtiling_or_equal(op.shape.dims, ahead, s) for s in (left, right)]
        if fits[0] != fits[1]:
            return 0 if fits[0] else 1
    return 1 if op.operand_shapes[0].byte_size < op.operand_shapes[1].byte_size else 0


@FORWARD.register("convolution")
def _convolution(op: Op, receiver: Receiver, operands: Shardings, level: int) -> None:
    dims = contraction_dims(op)
    split = any(_is_split(operands[side], [t[side] for t in dims.spatial]) for side in (0, 1))
    grouped = op.instruction.batch_group_count > 1 or op.instruction.feature_group_count > 1
    if not dims.spatial or not (split or grouped):
        _dot(op, receiver, operands, level)
        return
    source = operands[0]
    if source is None or not partitioned(source):
        return
    offered = source if source.is_tile_maximal() else _from_image(op, source)
    if offered is not None:
        receiver.improve(offered, 0)


def _is_split(sharding: HloSharding | None, dims: list[int]) -> bool:
    return sharding is not None and sharding.is_tiled() and any(sharding.num_tiles_along(d) > 1 for d in dims)


def _from_image(op: Op, source: HloSharding) -> HloSharding | None:
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


def _kernel_is_small(op: Op) -> bool:
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
def _other_side(op: Op, positions: tuple[int, ...]) -> tuple[int, ...]:
    return (1 - positions[0],) if positions[0] < 2 else ()


@BACKWARD.register("dot", "convolution")
def _dot_operand(
    edge: Edge, own: object, user: HloSharding, others: Shardings, level: int
) -> HloSharding | None:
    """From the output, merged with what the other operand says about the shared dims."""
    dims = contraction_dims(edge.op)
    if dims.spatial or edge.position > 1:
        return None
    side, rank = edge.position, edge.shape.rank
    carried = [(t[side], t[2]) for t in (*dims.batch, *dims.free(side))]
    from_output = along_dims(user, tuple(b for _, b in carried), tuple(a for a, _ in carried), rank)
    other = others[0]
    if other is None or not other.is_spatially_partitioned():
        return from_output
    shared = [(t[side], t[1 - side]) for t in (*dims.batch, *dims.contracting)]
    from_other = along_dims(other, tuple(b for _, b in shared), tuple(a for a, _ in shared), rank)
    better, merged = merge_sharding(from_output, from_other, edge.op.spmd and level > 0)
    return merged if better else from_output
