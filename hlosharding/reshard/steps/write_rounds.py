"""Writes the rounds of a piecewise plan as local HLO: cut, send, and put the pieces where they belong.

Floor: reshard.  Where every device gets the same windows at the same places along one dim, the pieces are
joined side by side; where the places differ a few are laid one over the other.  Both a compiler fuses into what reads
them.  Else they are written one by one into the result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, PaddingDim, Shape, SliceDim
from hlosharding.reshard.layout import Dims, Table
from hlosharding.reshard.steps.rounds import RESULT, Round
from hlosharding.spmd import Emitter


def put_together(
    emitter: Emitter,
    rounds: Sequence[Round],
    operands: Sequence[Instruction],
    shape: Shape,
    base: Instruction | None,
) -> Instruction:
    """The result, of local `shape`; places that no round writes hold `base`, a scalar or an array of that shape."""
    if not rounds:
        return emitter.full(0, shape) if base is None else _spread(emitter, base, shape)
    if shape.rank and (base is None or not base.shape.rank):  # a scalar has no dims along which pieces could lie
        strip = _strip(rounds, shape.dims)
        sticks_out = any(any(t.read_overhang(x.shape.dims, n)) for t in rounds for n, x in enumerate(operands))
        # Side by side, windows that stick out of an operand would have it padded; layers are drawn in instead.
        if _may_overlay(rounds, operands) and (strip is None or sticks_out):
            return _overlaid(emitter, rounds, operands, shape, base)
        if strip is not None:
            return _side_by_side(emitter, strip, _padded(emitter, rounds, operands), shape, base)
    operands = _padded(emitter, rounds, operands)
    # XLA's dynamic-slice and dynamic-update-slice move a window that sticks out back inside, onto others' elements: so
    # what they read and write is grown, and the result cut in the end.
    margin = _largest([turn.write_overhang(shape.dims) for turn in rounds], shape.rank)
    grown = shape.with_dims(tuple(size + more for size, more in zip(shape.dims, margin, strict=True)))
    none = [0] * shape.rank
    out = None
    if base is not None:
        out = emitter.pad(base, none, margin) if base.shape.rank else emitter.own_buffer(base, grown)
    for turn in rounds:
        out = _emit_round(emitter, operands, out, grown, turn, _filling(base))
    assert out is not None
    return emitter.slice(out, none, shape.dims)


def _filling(base: Instruction | None) -> Any:
    return base if base is not None and not base.shape.rank else 0


def _spread(emitter: Emitter, base: Instruction, shape: Shape) -> Instruction:
    return base if base.shape.dims == shape.dims else emitter.full(base, shape)


def _padded(emitter: Emitter, rounds: Sequence[Round], operands: Sequence[Instruction]) -> list[Instruction]:
    """Operands grown so that no window sticks out."""
    found: list[Instruction] = []
    for number, x in enumerate(operands):
        readers = [turn.read_overhang(x.shape.dims, number) for turn in rounds if number in turn.sources]
        found.append(emitter.pad(x, [0] * x.shape.rank, _largest(readers, x.shape.rank)))
    return found


def _largest(rows: Sequence[Dims], rank: int) -> Dims:
    return tuple(max((row[d] for row in rows), default=0) for d in range(rank))


# Side by side


@dataclass(frozen=True, slots=True)
class _WindowRow:
    """Windows side by side along one dim, at the same places on all devices."""

    dim: int
    turns: tuple[tuple[int, tuple[Round, ...]], ...]
    """(where it starts, the rounds that write there, for different devices), in order."""


def _strip(rounds: Sequence[Round], dims: Dims) -> _WindowRow | None:
    """The rounds as windows side by side; None where their places differ."""
    for dim in range(len(dims)):
        places: dict[tuple[int, Dims], list[Round]] = defaultdict(list)
        for turn in rounds:
            place = _place(turn, dim, dims)
            if place is None:
                break
            places[place, turn.write_span].append(turn)
        else:
            order = sorted(places, key=lambda key: key[0])
            ends = [place + span[dim] for place, span in order]
            if all(end <= place for end, (place, _) in zip(ends, order[1:], strict=False)):
                return _WindowRow(dim, tuple((place, tuple(places[place, span])) for place, span in order))
    return None


def _place(turn: Round, dim: int, dims: Dims) -> int | None:
    """Where along `dim` a round writes on all devices; None if it differs, or the window is no slab of the result."""
    starts = {tuple(table[t] for table in turn.write) for t in turn.targets}
    # What is cut from the result needs one that is written already; side by side it is made at one stroke.
    if len(starts) != 1 or RESULT in turn.sources:
        return None
    [start] = starts
    is_slab = all(d == dim or (start[d], turn.write_span[d]) == (0, size) for d, size in enumerate(dims))
    return start[dim] if is_slab and start[dim] + turn.write_span[dim] <= dims[dim] else None


def _side_by_side(
    emitter: Emitter, strip: _WindowRow, operands: Sequence[Instruction], shape: Shape, base: Instruction | None
) -> Instruction:
    fill, dim = _filling(base), strip.dim
    parts: list[Instruction] = []
    end = 0

    def gap(upto: int) -> None:
        if upto > end:
            parts.append(emitter.full(fill, shape.with_dim(dim, upto - end)))

    for place, turns in strip.turns:
        gap(place)
        window = shape.with_dims(turns[0].write_span)
        piece = None if base is None else emitter.full(fill, window)
        for turn in turns:
            piece = _over(emitter, piece, _arrived(emitter, operands, None, turn, fill), turn)
        assert piece is not None
        parts.append(piece)
        end = place + window.dims[dim]
    gap(shape.dims[dim])
    return emitter.concatenate(parts, dim)


def _over(emitter: Emitter, below: Instruction | None, piece: Instruction, turn: Round) -> Instruction:
    """A round's pieces where they count, else what is below."""
    counts = _what_counts(emitter, piece.shape, turn) if below is not None else None
    return piece if below is None or counts is None else emitter.select(counts, piece, below)


# One over the other

_MOST_LAYERS = 8
"""Selects, one over the other: with four, 5 plans are slower (at most 1.2), with sixteen one is faster (0.92)."""


def _may_overlay(rounds: Sequence[Round], operands: Sequence[Instruction]) -> bool:
    """Are the layers few, and can each window be moved, step by step, until it lies inside its operand?"""
    return len(rounds) <= _MOST_LAYERS and all(
        number != RESULT and bool((_first_places(turn, senders) <= _room(turn, operands[number])).all())
        for turn in rounds
        for number, senders, _ in turn.by_operand()
    )


def _first_places(turn: Round, senders: Table) -> Table:
    """[dim, sender]: the first place of the same phase as the one where its window starts."""
    return np.array(turn.read, np.int64)[:, senders] % np.array(turn.read_steps or (1,) * len(turn.sizes))[:, None]


def _room(turn: Round, x: Instruction) -> Table:
    """[dim, 0]: the last place where a window still lies in its operand."""
    return (np.array(x.shape.dims, np.int64) - np.array(turn.read_span, np.int64))[:, None]


def _overlaid(
    emitter: Emitter,
    rounds: Sequence[Round],
    operands: Sequence[Instruction],
    shape: Shape,
    base: Instruction | None,
) -> Instruction:
    out = None if base is None else _spread(emitter, base, shape)
    for turn in rounds:
        inside, places = _drawn_in(turn, operands)
        layer = _shifted(emitter, _arrived(emitter, operands, None, inside, _filling(base)), places, turn, shape)
        out = layer if out is None else emitter.select(_where(emitter, turn, shape), layer, out)
    assert out is not None
    return out


def _drawn_in(turn: Round, operands: Sequence[Instruction]) -> tuple[Round, tuple[Dims, ...]]:
    """The round with windows moved back until they lie in their operands, and where they then belong in the result."""
    rank = len(turn.sizes)
    read, write = (np.array(table, np.int64).reshape(rank, -1) for table in (turn.read, turn.write))
    steps, every = (np.array(some or (1,) * rank, np.int64)[:, None] for some in (turn.write_steps, turn.read_steps))
    for number, senders, receivers in turn.by_operand():
        # Whole steps back: a window of every second element that moved by one would cut the others.
        back = -(-np.maximum(0, read[:, senders] - _room(turn, operands[number])) // every)
        read[:, senders] -= back * every
        write[:, receivers] -= back * steps
    return replace(turn, read=_rows(read)), _rows(write)


def _rows(table: Any) -> tuple[Dims, ...]:
    return tuple(map(tuple, table.tolist()))


def _shifted(emitter: Emitter, piece: Instruction, places: tuple[Dims, ...], turn: Round, shape: Shape) -> Instruction:
    """A layer of the result's size with each device's piece at its place; what is beside it nobody reads."""
    low, high, starts = [0] * shape.rank, [0] * shape.rank, list[Dims]()
    targets = turn.targets
    for d, (table, size) in enumerate(zip(places, shape.dims, strict=True)):
        mine = [table[t] for t in targets]
        low[d], high[d] = max(0, *mine), max(0, size - piece.shape.dims[d] - min(mine))
        # Who gets nothing may read anywhere: as one that gets something does, so that where the others read at one
        # place a plain slice does it.
        starts.append(tuple(low[d] - (table[t] if t in targets else mine[0]) for t in range(len(table))))
    wide = emitter.pad(piece, low, high)
    if all(len(set(row)) == 1 for row in starts):
        first = [row[0] for row in starts]
        return emitter.slice(wide, first, [a + n for a, n in zip(first, shape.dims, strict=True)])
    return emitter.dynamic_slice(wide, [emitter.per_device(row) for row in starts], shape.dims)


def _where(emitter: Emitter, turn: Round, shape: Shape) -> Instruction:
    """Which elements of the result a round writes; a scalar where a device writes all of them, or none."""
    gets = np.zeros(emitter.num_partitions, np.bool_)
    gets[list(turn.targets)] = True
    found: Instruction | None = None
    for d, size in enumerate(shape.dims):
        low, high = _written(turn, d)
        if (low[gets] > 0).any() or (high[gets] < size).any():
            # Who gets nothing writes nothing: to say it along one dim is enough.
            low, high = np.where(gets, low, 0), np.where(gets, high, 0 if found is None else size)
            mask = emitter.broadcast(_between(emitter, low, high, size), shape.dims, (d,))
            found = mask if found is None else emitter.binary("and", found, mask)
    return _is_set(emitter, tuple(gets.astype(int).tolist())) if found is None else found


def _written(turn: Round, dim: int) -> tuple[Table, Table]:
    """[device]: first and one past the last element along a dim that it writes, if it gets anything."""
    step = turn.write_steps[dim] if turn.write_steps else 1
    start, real = np.array(turn.write[dim], np.int64), turn.real[dim] if turn.real else turn.sizes[dim]
    return start, start + (np.array(real, np.int64) - 1) * step + 1


def _between(emitter: Emitter, low: Table, high: Table, size: int) -> Instruction:
    """[element of a dim]: is it in the device's range?  Some device's range is smaller than the dim."""
    inside = None
    for table, direction, none in ((low, "GE", 0), (high, "LT", size)):
        if (table != none).any():
            beyond = _compared(emitter, size, direction, tuple(table.tolist()))
            inside = beyond if inside is None else emitter.binary("and", inside, beyond)
    assert inside is not None, "the whole dim needs no mask"
    return inside


def _compared(emitter: Emitter, size: int, direction: str, edges: Sequence[int]) -> Instruction:
    """[element of a dim]: how its place compares with the device's edge."""
    edge = emitter.per_device(edges, reach=size)
    line = edge.shape.with_dims((size,))
    return emitter.compare(emitter.iota(line, 0), direction, emitter.full(edge, line))


# One by one


def _emit_round(
    emitter: Emitter, operands: Sequence[Instruction], out: Instruction | None, grown: Shape, turn: Round, fill: Any
) -> Instruction:
    """`out` with one round's pieces.  The first round (no `out` yet) may spill: the rest write all it does not hold."""
    piece = _arrived(emitter, operands, out, turn, fill)
    if out is None:
        return piece if piece.shape.dims == grown.dims else _put(emitter, emitter.own_buffer(0, grown), piece, turn)
    counts = _what_counts(emitter, piece.shape, turn)
    if counts is not None:
        piece = emitter.select(counts, piece, _window(emitter, out, turn.write, turn.write_span))
    return _put(emitter, out, piece, turn)


def _put(emitter: Emitter, out: Instruction, piece: Instruction, turn: Round) -> Instruction:
    if piece.shape.dims == out.shape.dims:
        return piece
    return emitter.dynamic_update_slice(out, piece, [emitter.per_device(table) for table in turn.write])


# Pieces


def _arrived(
    emitter: Emitter, operands: Sequence[Instruction], out: Instruction | None, turn: Round, fill: Any
) -> Instruction:
    """A round's pieces on the devices that want them."""
    piece = _cut(emitter, operands, out, turn)
    if not turn.is_local:
        piece = emitter.collective_permute(piece, turn.pairs)
    return piece if turn.write_span == turn.sizes else _apart(emitter, piece, turn, fill)


def _apart(emitter: Emitter, piece: Instruction, turn: Round, fill: Any) -> Instruction:
    """The elements as far apart as they are put, with `fill` between."""
    value = fill if isinstance(fill, Instruction) else emitter.constant(np.asarray(fill, piece.shape.dtype))
    padding = tuple(PaddingDim(0, 0, step - 1) for step in turn.write_steps)
    return emitter.op("pad", piece.shape.with_dims(turn.write_span), (piece, value), padding=padding)


def _cut(emitter: Emitter, operands: Sequence[Instruction], out: Instruction | None, turn: Round) -> Instruction:
    """What each device sends or keeps."""
    found: Instruction | None = None
    for number in turn.sources:
        x = out if number == RESULT else operands[number]
        assert x is not None, "nothing is put together yet"
        part = _window(emitter, x, turn.read, turn.read_span)
        if turn.read_span != turn.sizes:
            dims = tuple(SliceDim(0, n, step) for n, step in zip(turn.read_span, turn.read_steps, strict=True))
            part = emitter.op("slice", part.shape.with_dims(turn.sizes), (part,), slice_dims=dims)
        if found is not None:
            mine = tuple(int(turn.operand(d) == number) for d in range(emitter.num_partitions))
            part = emitter.select(_is_set(emitter, mine), part, found)
        found = part
    assert found is not None, "a round has pieces"
    return found


def _window(emitter: Emitter, x: Instruction, tables: tuple[Dims, ...], sizes: Dims) -> Instruction:
    if sizes == x.shape.dims:
        return x
    return emitter.dynamic_slice(x, [emitter.per_device(table) for table in tables], sizes)


def _is_set(emitter: Emitter, table: Dims) -> Instruction:
    return emitter.compare(emitter.per_device(table), "NE", emitter.constant(np.int32(0)))


def _what_counts(emitter: Emitter, window: Shape, turn: Round) -> Instruction | None:
    """Which elements of the window are to be written; None: all, on all devices."""
    if not turn.real:
        if len(turn.targets) == emitter.num_partitions:
            return None
        targets = turn.targets
        return _is_set(emitter, tuple(int(d in targets) for d in range(emitter.num_partitions)))
    counts: Instruction | None = None
    for dim, table in enumerate(turn.real):
        step = turn.write_steps[dim] if turn.write_steps else 1
        ends = tuple((size - 1) * step + 1 if size else 0 for size in table)
        if all(end == window.dims[dim] for end in ends):
            continue
        before = _compared(emitter, window.dims[dim], "LT", ends)
        inside = emitter.broadcast(before, window.dims, (dim,))
        counts = inside if counts is None else emitter.binary("and", counts, inside)
    return counts
