"""Pieces of gather and scatter: rows held by another device are masked out of a gather and dropped by a scatter.

Floor: partitioner.  The indices are clamped to the whole array first, as the op itself would (gather), then shifted to
the device's own rows.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.masking import identity
from hlosharding.partitioner.pieces import PIECES, Piece, plain_piece
from hlosharding.partitioner.projection import tile_table
from hlosharding.rules import Whole


def _split_rows(piece: Piece) -> list[int]:
    """Dims of the array (operand 0) that indices address and that are split."""
    split = []
    for dim, factors in enumerate(piece.signature.operands[0]):
        for factor in factors:
            owes = piece.signature.factors[factor].owes
            if isinstance(owes, Whole) and owes.indexed and piece.ways(factor) > 1:
                split.append(dim)
    return split


def _row_starts(emitter: Emitter, piece: Piece, dim: int) -> tuple[int, ...]:
    step = piece.operands[0].shape.dims[dim]
    table = tile_table(piece.choice.operands[0], piece.operands[0].shape.rank, emitter.num_partitions)
    return tuple(index[dim] * step for index in table)


def _column(indices: Shape, vector_dim: int, column: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    starts = [0] * indices.rank
    limits = list(indices.dims)
    if vector_dim < indices.rank:
        starts[vector_dim], limits[vector_dim] = column, column + 1
    return tuple(starts), tuple(limits)


def _shift(
    emitter: Emitter, indices: Instruction, vector_dim: int, shifts: dict[int, Instruction], columns: int
) -> Instruction:
    """Subtract `shifts[c]` from column c of the indices."""
    if vector_dim >= indices.shape.rank:
        return emitter.binary("subtract", indices, emitter.full(shifts[0], indices.shape))
    line = [
        emitter.reshape(shifts[c], (1,)) if c in shifts else emitter.constant(np.zeros(1, indices.shape.dtype))
        for c in range(columns)
    ]
    row = emitter.concatenate(line, 0)
    return emitter.binary("subtract", indices, emitter.broadcast(row, indices.shape.dims, (vector_dim,)))


def _as_index(emitter: Emitter, number: Instruction, like: Shape) -> Instruction:
    shape = Shape.array(like.element_type)
    return number if number.shape is shape else emitter.op("convert", shape, (number,))


@PIECES.register("gather")
def _gather(emitter: Emitter, piece: Piece) -> Instruction:
    rows = _split_rows(piece)
    if not rows:
        return plain_piece(emitter, piece)
    array, indices = piece.operands
    dims = piece.inst.gather_dims
    indices = _signed(emitter, _clamped(emitter, piece, indices))
    shifts = {
        dims.start_index_map.index(d): _as_index(
            emitter, emitter.per_device(_row_starts(emitter, piece, d)), indices.shape
        )
        for d in rows
    }
    indices = _shift(emitter, indices, dims.index_vector_dim, shifts, len(dims.start_index_map))
    found = plain_piece(emitter, piece, (array, indices))
    mine = _addresses_own_rows(emitter, piece, indices, rows)
    batch = [d for d in range(found.shape.rank) if d not in dims.offset_dims]
    return emitter.select(
        emitter.broadcast(mine, found.shape.dims, batch), found, emitter.full(identity("add", found.shape), found.shape)
    )


def _clamped(emitter: Emitter, piece: Piece, indices: Instruction) -> Instruction:
    """Indices as a gather clamps them on the whole array, so that each addresses a row of exactly one device."""
    dims, whole = piece.inst.gather_dims, piece.inst.operands[0].shape.dims
    last = [whole[d] - piece.inst.gather_slice_sizes[d] for d in dims.start_index_map]
    low = emitter.full(np.zeros((), indices.shape.dtype), indices.shape)
    if dims.index_vector_dim >= indices.shape.rank:
        high = emitter.full(np.asarray(last[0], indices.shape.dtype), indices.shape)
    else:
        row = emitter.constant(np.asarray(last, indices.shape.dtype))
        high = emitter.broadcast(row, indices.shape.dims, (dims.index_vector_dim,))
    return emitter.op("clamp", indices.shape, (low, indices, high))


def _addresses_own_rows(emitter: Emitter, piece: Piece, indices: Instruction, rows: list[int]) -> Instruction:
    """pred over the index batch dims: do the shifted indices address rows of this device's piece?"""
    dims, local = piece.inst.gather_dims, piece.operands[0].shape.dims
    mine: Instruction | None = None
    batch = [s for d, s in enumerate(indices.shape.dims) if d != dims.index_vector_dim]
    for dim in rows:
        starts, limits = _column(indices.shape, dims.index_vector_dim, dims.start_index_map.index(dim))
        column = emitter.reshape(emitter.slice(indices, starts, limits), batch)
        zero = emitter.full(np.zeros((), column.shape.dtype), column.shape)
        end = emitter.full(np.asarray(local[dim], column.shape.dtype), column.shape)
        inside = emitter.binary("and", emitter.compare(column, "GE", zero), emitter.compare(column, "LT", end))
        mine = inside if mine is None else emitter.binary("and", mine, inside)
    assert mine is not None
    return mine


@PIECES.register("scatter")
def _scatter(emitter: Emitter, piece: Piece) -> Instruction:
    rows = _split_rows(piece)
    if not rows:
        return plain_piece(emitter, piece)
    count = len(piece.operands) // 2
    arrays, indices, updates = piece.operands[:count], piece.operands[count], piece.operands[count + 1 :]
    dims = piece.inst.scatter_dims
    indices = _signed(emitter, indices)
    shifts = {
        dims.scatter_dims_to_operand_dims.index(d): _as_index(
            emitter, emitter.per_device(_row_starts(emitter, piece, d)), indices.shape
        )
        for d in rows
    }
    shifted = _shift(emitter, indices, dims.index_vector_dim, shifts, len(dims.scatter_dims_to_operand_dims))
    # XLA merges a dynamic slice into the reads of a scatter without the clamp between them: an update that must be
    # dropped then writes an element of another row.
    held = [emitter.op("opt-barrier", a.shape, (a,)) if a.opcode == "dynamic-slice" else a for a in arrays]
    return plain_piece(emitter, piece, (*held, shifted, *updates))


def _signed(emitter: Emitter, indices: Instruction) -> Instruction:
    """Indices that a shift cannot wrap into range: signed, and of 32 bits at least.

    An index past the end of the whole array then addresses padding rows of the last device, which are garbage anyway,
    or none; a negative one stays negative.
    """
    wide = "s64" if indices.shape.element_type in ("u64", "s64") else "s32"
    if indices.shape.element_type == wide:
        return indices
    return emitter.op("convert", indices.shape.with_type(wide), (indices,))


@PIECES.register("dynamic-slice")
def _dynamic_slice(emitter: Emitter, piece: Piece) -> Instruction:
    rows, operands = _split_rows(piece), _whole_from_zero(emitter, piece, first=1)
    if not rows:
        return plain_piece(emitter, piece, operands)
    operands, mine = _own_place(emitter, piece, operands, rows, first=1)
    found = plain_piece(emitter, piece, operands)
    return emitter.select(mine, found, emitter.full(identity("add", found.shape), found.shape))


@PIECES.register("dynamic-update-slice")
def _dynamic_update_slice(emitter: Emitter, piece: Piece) -> Instruction:
    rows, operands = _split_rows(piece), _whole_from_zero(emitter, piece, first=2)
    if not rows:
        return plain_piece(emitter, piece, operands)
    (array, update, *starts), mine = _own_place(emitter, piece, operands, rows, first=2)
    # Devices that do not hold the place write back what is there.
    kept = emitter.select(mine, update, emitter.dynamic_slice(array, starts, update.shape.dims))
    return plain_piece(emitter, piece, (array, kept, *starts))


def _whole_from_zero(emitter: Emitter, piece: Piece, first: int) -> tuple[Instruction, ...]:
    """Operands with start 0 for dims that are taken whole: the op would clamp to that, the op on a tile might not."""
    array, part = piece.inst.operands[0].shape, piece.inst.shape if first == 1 else piece.inst.operands[1].shape
    return tuple(
        emitter.constant(np.zeros((), o.shape.dtype)) if d >= 0 and array.dims[d] == part.dims[d] else o
        for d, o in enumerate(piece.operands, start=-first)
    )


def _own_place(
    emitter: Emitter, piece: Piece, given: tuple[Instruction, ...], rows: list[int], first: int
) -> tuple[tuple[Instruction, ...], Instruction]:
    """Operands with the start indices of split dims (operand `first` on) made local, and whether they lie here."""
    operands, mine = [*given[:first], *(_signed(emitter, start) for start in given[first:])], None
    for dim in rows:
        start, low = operands[first + dim], emitter.constant(np.zeros((), operands[first + dim].shape.dtype))
        start = emitter.clamp(start, 0, piece.inst.operands[0].shape.dims[dim] - 1)
        shift = _as_index(emitter, emitter.per_device(_row_starts(emitter, piece, dim)), start.shape)
        start = emitter.binary("subtract", start, shift)
        end = emitter.constant(np.asarray(piece.operands[0].shape.dims[dim], start.shape.dtype))
        here = emitter.binary("and", emitter.compare(start, "GE", low), emitter.compare(start, "LT", end))
        mine = here if mine is None else emitter.binary("and", mine, here)
        # XLA's CPU backend does not clamp a negative start alike in a slice and in an update fused with it.
        operands[first + dim] = emitter.clamp(start, 0, piece.operands[0].shape.dims[dim] - 1)
    assert mine is not None
    return tuple(operands), mine
