"""Pieces of gather and scatter: rows held by another device are masked out of a gather and dropped by a scatter.

Floor: partitioner.  The indices are clamped to the whole array first, as the op itself would (gather), then shifted to
the device's own rows.  Index values that count along a split dim count anew in each piece.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.factors.pieces import PIECES, Piece, plain_piece
from hlosharding.rules import Whole, addressing
from hlosharding.sharding import tile_table
from hlosharding.spmd import Emitter, identity


def split_rows(piece: Piece) -> list[int]:
    """Dims of the array (operand 0) that indices address and that are split."""
    split = []
    for dim, factors in enumerate(piece.signature.operands[0]):
        for factor in factors:
            owes = piece.signature.factors[factor].owes
            if isinstance(owes, Whole) and owes.indexed and piece.ways(factor) > 1:
                split.append(dim)
    return split


def row_starts(emitter: Emitter, piece: Piece, dim: int) -> tuple[int, ...]:
    """The first row of every device's tile of the array."""
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


def as_index(emitter: Emitter, number: Instruction, like: Shape) -> Instruction:
    """A scalar in the element type of `like`."""
    shape = Shape.array(like.element_type)
    return number if number.shape is shape else emitter.op("convert", shape, (number,))


def _counting_anew(emitter: Emitter, piece: Piece) -> Piece:
    """The piece with index values that count along a split dim made for the device's own part of the array.

    They are not shifted: behind the end of an uneven dim they are garbage, which could address rows that count.
    """
    how = addressing(piece.inst)
    indices, along = piece.operands[how.indices], piece.signature.operands[how.indices]
    changed = False
    for column, dim in enumerate(how.addressed):
        factors = piece.signature.operands[0][dim]
        if factors and factors in along and piece.ways(factors[0]) > 1:
            indices, changed = _with_count(emitter, indices, how.vector_dim, column, along.index(factors)), True
    if not changed:
        return piece
    return piece._replace(operands=(*piece.operands[: how.indices], indices, *piece.operands[how.indices + 1 :]))


def _with_count(emitter: Emitter, indices: Instruction, vector_dim: int, column: int, along: int) -> Instruction:
    """The indices with one column 0, 1, 2, ... along a dim."""
    if vector_dim >= indices.shape.rank:
        return emitter.iota(indices.shape, along)
    starts, limits = _column(indices.shape, vector_dim, column)
    shape = tuple(limit - start for start, limit in zip(starts, limits, strict=True))
    before, after = list(limits), list(starts)
    before[vector_dim], after[vector_dim] = column, column + 1
    parts = [
        emitter.slice(indices, [0] * indices.shape.rank, before),
        emitter.iota(indices.shape.with_dims(shape), along),
        emitter.slice(indices, after, indices.shape.dims),
    ]
    return emitter.concatenate([p for p in parts if p.shape.dims[vector_dim]], vector_dim)


@PIECES.register("gather")
def _gather(emitter: Emitter, piece: Piece) -> Instruction:
    rows, piece = split_rows(piece), _counting_anew(emitter, piece)
    if not rows:
        return plain_piece(emitter, piece)
    array, indices = piece.operands
    how, margins = addressing(piece.inst), _margins(piece, rows)
    indices = signed_indices(emitter, _clamped(emitter, piece, indices))
    indices = _shifted(emitter, piece, indices, rows)
    # Rows of others come as zeros: those that a larger slice reaches from the margin, single ones by a mask.
    found = plain_piece(emitter, piece, (_widened(emitter, array, margins), indices))
    limits = {how.addressed.index(d): array.shape.dims[d] for d in rows if d not in margins}
    if not limits:
        return found
    batch = [d for d in range(found.shape.rank) if d not in how.windows]
    mine = emitter.broadcast(_within(emitter, indices, how.vector_dim, limits), found.shape.dims, batch)
    return emitter.select(mine, found, emitter.full(identity("add", found.shape), found.shape))


def _margins(piece: Piece, rows: list[int]) -> dict[int, int]:
    """Split dims of which slices are larger than one row, and how large: so far a slice may reach over a tile's end."""
    sizes = addressing(piece.inst).slice_sizes
    return {d: sizes[d] for d in rows if sizes[d] > 1}


def _widened(emitter: Emitter, array: Instruction, margins: dict[int, int]) -> Instruction:
    """The array with zeros around it."""
    edge = [margins.get(d, 0) for d in range(array.shape.rank)]
    return emitter.pad(array, edge, edge)


def _shifted(emitter: Emitter, piece: Piece, indices: Instruction, rows: list[int]) -> Instruction:
    """Indices as they address the device's own rows, margins included."""
    how, margins = addressing(piece.inst), _margins(piece, rows)
    shifts: dict[int, Instruction] = {}
    for dim in rows:
        starts = emitter.per_device(tuple(s - margins.get(dim, 0) for s in row_starts(emitter, piece, dim)))
        shifts[how.addressed.index(dim)] = as_index(emitter, starts, indices.shape)
    return _shift(emitter, indices, how.vector_dim, shifts, len(how.addressed))


def _clamped(emitter: Emitter, piece: Piece, indices: Instruction) -> Instruction:
    """Indices as a gather clamps them on the whole array, so that each addresses a row of exactly one device."""
    how, whole = addressing(piece.inst), piece.inst.operands[0].shape.dims
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
    found: Instruction | None = None
    batch = [s for d, s in enumerate(indices.shape.dims) if d != vector_dim]
    for number, limit in limits.items():
        column = emitter.reshape(emitter.slice(indices, *_column(indices.shape, vector_dim, number)), batch)
        zero, end = emitter.full(0, column.shape), emitter.full(limit, column.shape)
        inside = emitter.binary("and", emitter.compare(column, "GE", zero), emitter.compare(column, "LT", end))
        found = inside if found is None else emitter.binary("and", found, inside)
    assert found is not None
    return found


@PIECES.register("scatter")
def _scatter(emitter: Emitter, piece: Piece) -> Instruction:
    rows, piece = split_rows(piece), _counting_anew(emitter, piece)
    if not rows:
        return plain_piece(emitter, piece)
    count, margins = len(piece.operands) // 2, _margins(piece, rows)
    arrays, updates = piece.operands[:count], piece.operands[count + 1 :]
    indices = signed_indices(emitter, piece.operands[count])
    shifted = _shifted(emitter, piece, indices, rows)
    if margins:
        shifted = _dropped(emitter, piece, indices, shifted, margins)
    # Without the barrier an update that must be dropped writes an element of another row.
    wide = [_widened(emitter, emitter.behind_barrier(a), margins) for a in arrays]
    shape = Shape.tuple(tuple(a.shape for a in wide)) if piece.inst.shape.is_tuple else wide[0].shape
    return _narrowed(emitter, plain_piece(emitter, piece, (*wide, shifted, *updates), shape=shape), margins)


def _dropped(
    emitter: Emitter, piece: Piece, indices: Instruction, shifted: Instruction, margins: dict[int, int]
) -> Instruction:
    """Shifted indices, but -1 for updates that reach over the end of the whole array: a margin must not take them."""
    how, whole = addressing(piece.inst), piece.inst.operands[0].shape.dims
    limits = {how.addressed.index(d): whole[d] - size + 1 for d, size in margins.items()}
    batch = [d for d in range(indices.shape.rank) if d != how.vector_dim]
    fits = emitter.broadcast(_within(emitter, indices, how.vector_dim, limits), indices.shape.dims, batch)
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


def signed_indices(emitter: Emitter, indices: Instruction) -> Instruction:
    """Indices that a shift cannot wrap into range: signed, and of 32 bits at least.

    An index past the end of the whole array then addresses padding rows of the last device, which are garbage anyway,
    or none; a negative one stays negative.
    """
    wide = "s64" if indices.shape.element_type in ("u64", "s64") else "s32"
    if indices.shape.element_type == wide:
        return indices
    return emitter.op("convert", indices.shape.with_type(wide), (indices,))
