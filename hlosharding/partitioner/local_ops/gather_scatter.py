"""Gather and scatter along split dims: rows of other devices are masked out of a gather and dropped by a scatter.

Floor: partitioner.  The indices are clamped to the whole array first, as the op itself would (gather), then shifted to
the device's own rows.  Index values that count along a split dim count anew on each device.
"""

from __future__ import annotations

from functools import partial, reduce

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.local_ops.local_op import (
    LocalOp,
    as_index,
    emit_same_op,
    row_starts,
    shifted_columns,
    signed_indices,
    split_row_dims,
)
from hlosharding.rules import addressing
from hlosharding.spmd import Emitter, identity


def _with_own_counts(emitter: Emitter, op: LocalOp) -> LocalOp:
    """The op with index values that count along a split dim made for the device's own part of the array.

    They are not shifted: behind the end of an uneven dim they are garbage, which could address rows that count.
    """
    how = addressing(op.inst)
    indices, along = op.operands[how.indices], op.signature.operands[how.indices]
    for column, dim in enumerate(how.addressed):
        factors = op.signature.operands[0][dim]
        if factors and factors in along and op.num_tiles(factors[0]) > 1:
            indices = _with_counted_column(emitter, indices, how.vector_dim, column, along.index(factors))
    return op._replace(operands=(*op.operands[: how.indices], indices, *op.operands[how.indices + 1 :]))


def _with_counted_column(
    emitter: Emitter, indices: Instruction, vector_dim: int, column: int, along: int
) -> Instruction:
    """The indices with one column 0, 1, 2, ... along a dim."""
    # Where indices are scalars, HLO has their vectors along a dim behind the last one.
    if vector_dim >= indices.shape.rank:
        return emitter.iota(indices.shape, along)
    parts = [
        emitter.slice_along(indices, vector_dim, 0, column),
        emitter.iota(indices.shape.with_dim(vector_dim, 1), along),
        emitter.slice_along(indices, vector_dim, column + 1, indices.shape.dims[vector_dim]),
    ]
    return emitter.concatenate([p for p in parts if p.shape.dims[vector_dim]], vector_dim)


def emit_gather(emitter: Emitter, op: LocalOp) -> Instruction:
    """The rows that the device holds, at their places in the result, and zeros for those of others."""
    rows, op = split_row_dims(op), _with_own_counts(emitter, op)
    if not rows:
        return emit_same_op(emitter, op)
    array, indices = op.operands
    how, margins = addressing(op.inst), _margins(op, rows)
    indices = signed_indices(emitter, _clamped(emitter, op, indices), max(op.inst.operands[0].shape.dims))
    indices = _shifted(emitter, op, indices, rows)
    # Rows of others come as zeros: those that a larger slice reaches from the margin, single ones by a mask.
    found = emit_same_op(emitter, op, (_widened(emitter, array, margins), indices))
    limits = {how.addressed.index(d): array.shape.dims[d] for d in rows if d not in margins}
    if not limits:
        return found
    batch = [d for d in range(found.shape.rank) if d not in how.windows]
    mine = emitter.broadcast(_within(emitter, indices, how.vector_dim, limits), found.shape.dims, batch)
    return emitter.select(mine, found, emitter.full(identity("add", found.shape), found.shape))


def _margins(op: LocalOp, rows: list[int]) -> dict[int, int]:
    """Split dims of which slices are larger than one row, and how large: so far a slice may reach over a tile's end."""
    sizes = addressing(op.inst).slice_sizes
    return {d: sizes[d] for d in rows if sizes[d] > 1}


def _widened(emitter: Emitter, array: Instruction, margins: dict[int, int]) -> Instruction:
    """The array with zeros around it."""
    edge = [margins.get(d, 0) for d in range(array.shape.rank)]
    return emitter.pad(array, edge, edge)


def _shifted(emitter: Emitter, op: LocalOp, indices: Instruction, rows: list[int]) -> Instruction:
    """Indices as they address the device's own rows, margins included."""
    how, margins = addressing(op.inst), _margins(op, rows)
    shifts: dict[int, Instruction] = {}
    for dim in rows:
        starts = emitter.per_device(tuple(s - margins.get(dim, 0) for s in row_starts(emitter, op, dim)))
        shifts[how.addressed.index(dim)] = as_index(emitter, starts, indices.shape)
    return shifted_columns(emitter, indices, how.vector_dim, shifts, len(how.addressed))


def _clamped(emitter: Emitter, op: LocalOp, indices: Instruction) -> Instruction:
    """Indices as a gather clamps them on the whole array, so that each addresses a row of exactly one device."""
    how, whole = addressing(op.inst), op.inst.operands[0].shape.dims
    # Of a long array the last row may be more than the type holds: then no index reaches it, and none is clamped to it.
    most = np.iinfo(indices.shape.dtype).max
    last = [min(whole[d] - how.slice_sizes[d], most) for d in how.addressed]
    low = emitter.full(np.zeros((), indices.shape.dtype), indices.shape)
    if how.vector_dim >= indices.shape.rank:
        high = emitter.full(np.asarray(last[0], indices.shape.dtype), indices.shape)
    else:
        row = emitter.constant(np.asarray(last, indices.shape.dtype))
        high = emitter.broadcast(row, indices.shape.dims, (how.vector_dim,))
    return emitter.op("clamp", indices.shape, (low, indices, high))


def _within(emitter: Emitter, indices: Instruction, vector_dim: int, limits: dict[int, int]) -> Instruction:
    """pred over the index batch dims: is every component c from 0 up to `limits[c]`?"""
    has_vectors = vector_dim < indices.shape.rank
    batch = [s for d, s in enumerate(indices.shape.dims) if d != vector_dim]

    def inside(number: int, limit: int) -> Instruction:
        component = emitter.slice_along(indices, vector_dim, number, number + 1) if has_vectors else indices
        column = emitter.reshape(component, batch)
        zero, end = emitter.full(0, column.shape), emitter.full(limit, column.shape)
        return emitter.binary("and", emitter.compare(column, "GE", zero), emitter.compare(column, "LT", end))

    return reduce(partial(emitter.binary, "and"), map(inside, limits, limits.values()))


def emit_scatter(emitter: Emitter, op: LocalOp) -> Instruction:
    """The device's rows with the updates that address them."""
    rows, op = split_row_dims(op), _with_own_counts(emitter, op)
    if not rows:
        return emit_same_op(emitter, op)
    count, margins = len(op.operands) // 2, _margins(op, rows)
    arrays, updates = op.operands[:count], op.operands[count + 1 :]
    # Not clamped, as a gather's are: a scatter drops updates outside the array.
    indices = signed_indices(emitter, op.operands[count], max(op.inst.operands[0].shape.dims))
    shifted = _shifted(emitter, op, indices, rows)
    if margins:
        shifted = _dropped(emitter, op, indices, shifted, margins)
    # Without the barrier an update that must be dropped writes an element of another row.
    wide = [_widened(emitter, emitter.behind_barrier(a), margins) for a in arrays]
    shape = Shape.tuple(tuple(a.shape for a in wide)) if op.inst.shape.is_tuple else wide[0].shape
    return _narrowed(emitter, emit_same_op(emitter, op, (*wide, shifted, *updates), shape=shape), margins)


def _dropped(
    emitter: Emitter, op: LocalOp, indices: Instruction, shifted: Instruction, margins: dict[int, int]
) -> Instruction:
    """Shifted indices, but -1 for updates that reach over the end of the whole array: a margin must not take them."""
    how, whole = addressing(op.inst), op.inst.operands[0].shape.dims
    limits = {how.addressed.index(d): whole[d] - size + 1 for d, size in margins.items()}
    batch = [d for d in range(indices.shape.rank) if d != how.vector_dim]
    fits = emitter.broadcast(_within(emitter, indices, how.vector_dim, limits), indices.shape.dims, batch)
    # Before the margin, too, lies -1: a scatter drops what is outside.
    return emitter.select(fits, shifted, emitter.full(-1, shifted.shape))


def _narrowed(emitter: Emitter, result: Instruction, margins: dict[int, int]) -> Instruction:
    """The result (or each of several) without its margins."""
    if not margins:
        return result
    if result.shape.is_tuple:
        parts = [_narrowed(emitter, p, margins) for p in emitter.elements(result)]
        return emitter.op("tuple", Shape.tuple(tuple(p.shape for p in parts)), parts)
    edges = [margins.get(d, 0) for d in range(result.shape.rank)]
    return emitter.slice(result, edges, [n - e for n, e in zip(result.shape.dims, edges, strict=True)])
