"""Dynamic slices and updates along split dims: every device takes, or writes, the rows that lie in its own tile.

Floor: partitioner.  A device looks at a window of its tile: as large as the slice, or the whole tile where that is
smaller.  Of a dynamic-slice it gives its rows at their place in the slice and zeros elsewhere, so that the devices'
results add up; of a dynamic-update-slice it writes its rows, and what was there for those of others.

    rows of the array      0 1 2 3 | 4 5 6 7        two tiles of four rows
    slice of three rows        [2 3   4]            start 2
    window in each tile      (1 2 3)|(4 5 6)        as large as the slice, clamped into the tile
    offset of the slice in its window       1 | -2
    result                   2 3 0  | 0 0 4         they add up to 2 3 4
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.local_ops.local_op import (
    LocalOp,
    as_index,
    emit_same_op,
    row_starts,
    signed_indices,
    split_row_dims,
)
from hlosharding.spmd import Emitter, identity


def emit_dynamic_slice(emitter: Emitter, op: LocalOp) -> Instruction:
    """The device's rows of a dynamic-slice, and zeros for those of other devices."""
    rows, (array, *starts) = split_row_dims(op), _whole_from_zero(emitter, op, first=1)
    if not rows:
        return emit_same_op(emitter, op, (array, *_of_one_type(emitter, op, starts, op.shape.dims)))
    wanted, sizes, offsets = op.shape.dims, list(op.shape.dims), dict[int, Instruction]()
    for dim in rows:
        sizes[dim] = min(wanted[dim], array.shape.dims[dim])
        starts[dim], offsets[dim] = _window(emitter, op, dim, starts[dim], wanted[dim])
    starts = _of_one_type(emitter, op, starts, wanted)
    found = emit_same_op(
        emitter, op, (array, *starts), shape=op.shape.with_dims(tuple(sizes)),
        dynamic_slice_sizes=lambda _: tuple(sizes),
    )  # fmt: skip
    for dim in rows:
        found = _rows(emitter, found, dim, offsets[dim], wanted[dim])
    # A single row is not moved to its place by zeros around it: it counts, or it does not.
    single = [_holds(emitter, offsets[d], 1, 1) for d in rows if wanted[d] == 1]
    if not single:
        return found
    counts = reduce(partial(emitter.binary, "and"), single)
    return emitter.select(counts, found, emitter.full(identity("add", found.shape), found.shape))


def emit_dynamic_update_slice(emitter: Emitter, op: LocalOp) -> Instruction:
    """The tile with those rows of the update that lie in it."""
    rows, (array, update, *starts) = split_row_dims(op), _whole_from_zero(emitter, op, first=2)
    if not rows:
        return emit_same_op(emitter, op, (array, update, *_of_one_type(emitter, op, starts, update.shape.dims)))
    whole, mine = update.shape.dims, list[tuple[int, Instruction]]()
    for dim in rows:
        count = update.shape.dims[dim]
        size = min(count, array.shape.dims[dim])
        starts[dim], offset = _window(emitter, op, dim, starts[dim], count)
        first = emitter.op("negate", offset.shape, (offset,))
        update = _rows(emitter, update, dim, first, size)
        mine.append((dim, _holds(emitter, first, size, count)))
    dims = update.shape.dims
    places = [emitter.broadcast(m, dims, (d,) if m.shape.rank else ()) for d, m in mine]
    here = reduce(partial(emitter.binary, "and"), places)
    starts = _of_one_type(emitter, op, starts, whole)
    kept = emitter.select(here, update, emitter.dynamic_slice(array, starts, dims))
    return emit_same_op(emitter, op, (array, kept, *starts))


def _whole_from_zero(emitter: Emitter, op: LocalOp, first: int) -> tuple[Instruction, ...]:
    """Operands with start 0 for dims that are taken whole: the op would clamp to that, the op on a tile might not.

    `first` is the operand that holds the first start.
    """
    array, part = op.inst.operands[0].shape, op.inst.shape if first == 1 else op.inst.operands[1].shape
    return tuple(
        # Operands before the first start have negative numbers.
        emitter.constant(np.zeros((), o.shape.dtype)) if d >= 0 and array.dims[d] == part.dims[d] else o
        for d, o in enumerate(op.operands, start=-first)
    )


def _of_one_type(
    emitter: Emitter, op: LocalOp, starts: Sequence[Instruction], sizes: Sequence[int]
) -> list[Instruction]:
    """The starts (of a slice of `sizes`) in one element type, which StableHLO and `jax.lax` want: HLO takes several.

    Each is brought into range while it has its own type: another might not hold it.
    """
    if len({start.shape for start in starts}) <= 1:
        return list(starts)
    given, whole = op.inst.operands[len(op.operands) - len(starts) :], op.inst.operands[0].shape.dims
    found = [
        # A start that was shifted into its tile may be clamped once more, where its type is as it was: it lies below
        # this bound, too, so that nothing changes.
        signed_indices(emitter, emitter.clamp(start, 0, size - part) if start.shape is old.shape else start, size)
        for start, old, size, part in zip(starts, given, whole, sizes, strict=True)
    ]
    widest = max((start.shape for start in found), key=lambda shape: shape.bits)
    return [as_index(emitter, start, widest) for start in found]


def _window(emitter: Emitter, op: LocalOp, dim: int, start: Instruction, count: int) -> tuple[Instruction, Instruction]:
    """Where the device's window starts in its tile, and where the slice starts in that window (perhaps outside)."""
    whole, tile = op.inst.operands[0].shape.dims[dim], op.operands[0].shape.dims[dim]
    # In its own type: a large unsigned number would become a negative one.
    start = signed_indices(emitter, emitter.clamp(start, 0, whole - count), whole)
    shift = as_index(emitter, emitter.per_device(row_starts(emitter, op, dim)), start.shape)
    start = emitter.binary("subtract", start, shift)
    # XLA's CPU backend does not clamp a negative start alike in a slice and in an update fused with it.
    begin = emitter.clamp(start, 0, tile - min(count, tile))
    return begin, emitter.binary("subtract", start, begin)


def _rows(emitter: Emitter, x: Instruction, dim: int, first: Instruction, count: int) -> Instruction:
    """Rows `first` up to `first + count` of x, and zeros for those it has not; of a single row just that one."""
    size = x.shape.dims[dim]
    if size == count == 1:
        return x
    # Between zeros any run of rows can be cut out: of x itself XLA would clamp the start, and give rows in place of
    # zeros.
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
