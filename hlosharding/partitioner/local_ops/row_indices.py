"""Index values that address rows of a split array: where each device's rows start, and indices shifted to them.

Floor: partitioner.  What gather, scatter and dynamic slices share.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.local_ops.local_op import LocalOp
from hlosharding.rules import Whole
from hlosharding.sharding import tile_table
from hlosharding.spmd import Emitter


def split_row_dims(op: LocalOp) -> list[int]:
    """Dims of the array (operand 0) that indices address and that are split."""
    split: list[int] = []
    for dim, factors in enumerate(op.signature.operands[0]):
        for factor in factors:
            owes = op.signature.factors[factor].owes
            if isinstance(owes, Whole) and owes.indexed and op.num_tiles(factor) > 1:
                split.append(dim)
    return split


def row_starts(emitter: Emitter, op: LocalOp, dim: int) -> tuple[int, ...]:
    """The first row of every device's tile of the array."""
    step = op.operands[0].shape.dims[dim]
    table = tile_table(op.choice.operands[0], op.operands[0].shape.rank, emitter.num_partitions)
    return tuple(index[dim] * step for index in table)


def as_index(emitter: Emitter, number: Instruction, like: Shape) -> Instruction:
    """A scalar in the element type of `like`."""
    shape = Shape.array(like.element_type)
    return number if number.shape is shape else emitter.op("convert", shape, (number,))


def signed_indices(emitter: Emitter, indices: Instruction, size: int) -> Instruction:
    """Indices that a shift cannot wrap into range: signed, and of 32 bits at least.

    An index past the end of the whole array then addresses padding rows of the last device, which are garbage anyway,
    or none; a negative one stays negative.  `size`: of the largest dim that they address.
    """
    has_64_bits = indices.shape.element_type in ("u64", "s64")
    wide = "s64" if has_64_bits or size > np.iinfo(np.int32).max else "s32"
    if indices.shape.element_type == wide:
        return indices
    return emitter.op("convert", indices.shape.with_type(wide), (indices,))


def column_bounds(indices: Shape, vector_dim: int, column: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(starts, limits) of one component of the index vectors; `vector_dim` is the rank where there is but one.

    >>> column_bounds(Shape.parse("s32[12,2]"), 1, 0)
    ((0, 0), (12, 1))
    """
    starts = [0] * indices.rank
    limits = list(indices.dims)
    if vector_dim < indices.rank:
        starts[vector_dim], limits[vector_dim] = column, column + 1
    return tuple(starts), tuple(limits)


def shifted_columns(
    emitter: Emitter, indices: Instruction, vector_dim: int, shifts: dict[int, Instruction], columns: int
) -> Instruction:
    """The indices less `shifts[c]` in column c."""
    if vector_dim >= indices.shape.rank:
        return emitter.binary("subtract", indices, emitter.full(shifts[0], indices.shape))
    line = [
        emitter.reshape(shifts[c], (1,)) if c in shifts else emitter.constant(np.zeros(1, indices.shape.dtype))
        for c in range(columns)
    ]
    row = emitter.concatenate(line, 0)
    return emitter.binary("subtract", indices, emitter.broadcast(row, indices.shape.dims, (vector_dim,)))
