"""Pieces of dynamic slices along split dims: every device takes, or writes, the rows that lie in its own tile.

Floor: partitioner.  A device looks at a window of its tile: as large as the block, or the whole tile where that is
smaller.  Of a slice it gives its rows at their place in the block and zeros elsewhere, so that the pieces add up; of an
update it writes its rows, and what was there for those of others.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.factors.indexed_pieces import as_index, row_starts, signed_indices, split_rows
from hlosharding.partitioner.factors.pieces import PIECES, Piece, plain_piece
from hlosharding.spmd import Emitter, identity


@PIECES.register("dynamic-slice")
def _dynamic_slice(emitter: Emitter, piece: Piece) -> Instruction:
    rows, (array, *starts) = split_rows(piece), _whole_from_zero(emitter, piece, first=1)
    if not rows:
        return plain_piece(emitter, piece, (array, *starts))
    block, sizes, offsets = piece.shape.dims, list(piece.shape.dims), dict[int, Instruction]()
    for dim in rows:
        sizes[dim] = min(block[dim], array.shape.dims[dim])
        starts[dim], offsets[dim] = _window(emitter, piece, dim, starts[dim], block[dim])
    found = plain_piece(
        emitter, piece, (array, *starts), shape=piece.shape.with_dims(tuple(sizes)),
        dynamic_slice_sizes=lambda _: tuple(sizes),
    )  # fmt: skip
    for dim in rows:
        found = _rows(emitter, found, dim, offsets[dim], block[dim])
    alone = [_holds(emitter, offsets[d], 1, 1) for d in rows if block[d] == 1]
    if not alone:
        return found
    return emitter.select(_all(emitter, alone), found, emitter.full(identity("add", found.shape), found.shape))


@PIECES.register("dynamic-update-slice")
def _dynamic_update_slice(emitter: Emitter, piece: Piece) -> Instruction:
    rows, (array, update, *starts) = split_rows(piece), _whole_from_zero(emitter, piece, first=2)
    if not rows:
        return plain_piece(emitter, piece, (array, update, *starts))
    mine: list[tuple[int, Instruction]] = []
    for dim in rows:
        block = update.shape.dims[dim]
        size = min(block, array.shape.dims[dim])
        starts[dim], offset = _window(emitter, piece, dim, starts[dim], block)
        first = emitter.op("negate", offset.shape, (offset,))
        update = _rows(emitter, update, dim, first, size)
        mine.append((dim, _holds(emitter, first, size, block)))
    dims = update.shape.dims
    here = _all(emitter, [emitter.broadcast(m, dims, (d,) if m.shape.rank else ()) for d, m in mine])
    kept = emitter.select(here, update, emitter.dynamic_slice(array, starts, dims))
    return plain_piece(emitter, piece, (array, kept, *starts))


def _whole_from_zero(emitter: Emitter, piece: Piece, first: int) -> tuple[Instruction, ...]:
    """Operands with start 0 for dims that are taken whole: the op would clamp to that, the op on a tile might not."""
    array, part = piece.inst.operands[0].shape, piece.inst.shape if first == 1 else piece.inst.operands[1].shape
    return tuple(
        emitter.constant(np.zeros((), o.shape.dtype)) if d >= 0 and array.dims[d] == part.dims[d] else o
        for d, o in enumerate(piece.operands, start=-first)
    )


def _window(
    emitter: Emitter, piece: Piece, dim: int, start: Instruction, block: int
) -> tuple[Instruction, Instruction]:
    """Where the device's window starts in its tile, and where the block starts in that window (perhaps outside)."""
    whole, tile = piece.inst.operands[0].shape.dims[dim], piece.operands[0].shape.dims[dim]
    start = emitter.clamp(signed_indices(emitter, start), 0, whole - block)
    shift = as_index(emitter, emitter.per_device(row_starts(emitter, piece, dim)), start.shape)
    start = emitter.binary("subtract", start, shift)
    # XLA's CPU backend does not clamp a negative start alike in a slice and in an update fused with it.
    begin = emitter.clamp(start, 0, tile - min(block, tile))
    return begin, emitter.binary("subtract", start, begin)


def _rows(emitter: Emitter, x: Instruction, dim: int, first: Instruction, count: int) -> Instruction:
    """Rows `first` up to `first + count` of x, and zeros for those it has not; of a single row just that one."""
    size = x.shape.dims[dim]
    if size == count == 1:
        return x
    edge = [count if d == dim else 0 for d in range(x.shape.rank)]
    padded = emitter.pad(x, edge, edge)
    first = emitter.binary("add", first, emitter.constant(np.asarray(count, first.shape.dtype)))
    zero = emitter.constant(np.zeros((), first.shape.dtype))
    starts = [emitter.clamp(first, 0, size + count) if d == dim else zero for d in range(x.shape.rank)]
    return emitter.dynamic_slice(padded, starts, [count if d == dim else n for d, n in enumerate(x.shape.dims)])


def _holds(emitter: Emitter, first: Instruction, count: int, size: int) -> Instruction:
    """Which of the rows `first` up to `first + count` are among `size` rows: pred[count], or pred[] of a single one."""
    if count == size == 1:
        return emitter.compare(first, "EQ", emitter.constant(np.zeros((), first.shape.dtype)))
    line = Shape.array(first.shape.element_type, (count,))
    rows = emitter.binary("add", emitter.iota(line, 0), emitter.full(first, line))
    after, before = emitter.full(0, line), emitter.full(size, line)
    return emitter.binary("and", emitter.compare(rows, "GE", after), emitter.compare(rows, "LT", before))


def _all(emitter: Emitter, predicates: list[Instruction]) -> Instruction:
    """All of them hold."""
    found = predicates[0]
    for other in predicates[1:]:
        found = emitter.binary("and", found, other)
    return found
