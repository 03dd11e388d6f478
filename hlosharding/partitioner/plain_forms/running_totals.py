"""Running sums, products and extrema along a split dim: each device's own, and the totals of those before it.

Floor: partitioner.  JAX writes `jnp.cumsum(x)` as a reduce-window whose window holds all that comes before.  Along a
split dim that would need half of the array; of tiles seen as rows of a table only one number for each row is needed.

    x, four tiles           1 2 | 3 4 | 5 6 | 7 8       reshaped: a row for each tile, split by rows
    running sums in rows    1 3 | 3 7 | 5 11| 7 15
    totals before the row   0   | 3   | 10  | 21        running sums of the last column: all that moves
    together                1 3 | 6 10|15 21|28 36
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hlosharding.ir import Instruction, PaddingDim, Shape, SliceDim, WindowDim, is_neutral, reducer_kind
from hlosharding.partitioner.plain_forms.places import plain_sharding
from hlosharding.partitioner.plain_forms.writer import Form, Writer, elementwise, is_elementwise
from hlosharding.sharding import HloSharding, split_dimension


@dataclass(frozen=True, slots=True)
class _Running:
    """Along which dim a reduce-window runs, and how that is split."""

    dim: int
    is_reversed: bool
    num_tiles: int
    sharding: HloSharding


def running_totals_form(inst: Instruction) -> Form | None:
    """What splits a running reduction; None for windows that are smaller, or along dims that are whole."""
    how = _running(inst)
    return None if how is None else partial(_by_tiles, how=how)


def _running(inst: Instruction) -> _Running | None:
    along = [d for d, window in enumerate(inst.window) if not window.is_trivial]
    if len(along) != 1 or len(inst.operands) != 2:
        return None
    [dim], size = along, inst.operands[0].shape.dims[along[0]]
    forwards, backwards = WindowDim(size, padding_low=size - 1), WindowDim(size, padding_high=size - 1)
    if inst.window[dim] not in (forwards, backwards):
        return None
    sharding = plain_sharding(inst) or plain_sharding(inst.operands[0])
    # With a tile for each element there would be as many totals as elements.
    if sharding is None or not 1 < sharding.num_tiles_along(dim) < size:
        return None
    if not is_elementwise(inst.called[0]) or not _may_be_repeated(inst):
        return None
    return _Running(dim, inst.window[dim] == backwards, sharding.num_tiles_along(dim), sharding)


def _may_be_repeated(inst: Instruction) -> bool:
    """May the initial value enter more often?  A reducer of its own is trusted to start from a neutral constant."""
    kind, init = reducer_kind(inst.called[0]), inst.operands[1]
    return init.opcode == "constant" if kind == "other" else is_neutral(init, kind)


def _by_tiles(write: Writer, how: _Running) -> None:
    x = write.inst.operands[0]
    dim, size = how.dim, x.shape.dims[how.dim]
    tile = -(-size // how.num_tiles)
    rows = split_dimension(how.sharding, dim, how.num_tiles)
    filled = _resized(write, x, dim, how.num_tiles * tile, how.sharding)
    table = x.shape.with_dims((*x.shape.dims[:dim], how.num_tiles, tile, *x.shape.dims[dim + 1 :]))
    within = _scan(write, write("reshape", filled, shape=table, sharding=rows), dim + 1, how, rows)
    before = _totals_before(write, within, how)
    carried = write("broadcast", before, shape=table, sharding=rows, dimensions=_without(table, dim + 1))
    # What comes first is the left operand: a reducer of the user's own need not commute.
    both = (within, carried) if how.is_reversed else (carried, within)
    joined = elementwise(write, write.inst.called[0], both, rows)
    flat = write("reshape", joined, shape=filled.shape, sharding=how.sharding)
    write.replace_by(_cut(write, flat, dim, size))


def _resized(write: Writer, x: Instruction, dim: int, size: int, sharding: HloSharding) -> Instruction:
    """`x` with initial values behind its end."""
    more = size - x.shape.dims[dim]
    if not more:
        return x
    padding = tuple(PaddingDim(0, more if d == dim else 0, 0) for d in range(x.shape.rank))
    return write("pad", x, write.inst.operands[1], padding=padding, sharding=sharding)


def _cut(write: Writer, x: Instruction, dim: int, size: int) -> Instruction:
    if x.shape.dims[dim] == size:
        return x
    dims = tuple(SliceDim(0, size if d == dim else n, 1) for d, n in enumerate(x.shape.dims))
    return write("slice", x, slice_dims=dims, shape=write.inst.shape)


def _scan(write: Writer, x: Instruction, dim: int, how: _Running, sharding: HloSharding | None) -> Instruction:
    """The running reduction along one dim."""
    size = x.shape.dims[dim]
    before, behind = (0, size - 1) if how.is_reversed else (size - 1, 0)
    return _windowed(write, x, dim, WindowDim(size, padding_low=before, padding_high=behind), sharding)


def _totals_before(write: Writer, within: Instruction, how: _Running) -> Instruction:
    """For each row what the rows before it add up to (behind it, of a reversed one)."""
    dim, place = how.dim, 0 if how.is_reversed else within.shape.dims[how.dim + 1] - 1
    sizes = [SliceDim(0, n, 1) for n in within.shape.dims]
    sizes[dim + 1] = SliceDim(place, place + 1, 1)
    last = write("slice", within, slice_dims=tuple(sizes))
    kept = _without(within.shape, dim + 1)
    totals = write("reshape", last, shape=within.shape.with_dims(tuple(within.shape.dims[d] for d in kept)))
    # A window of all others, that ends before the row: what is padded at one end is cut at the other.
    others = how.num_tiles - 1
    edges = (-1, others) if how.is_reversed else (others, -1)
    return _windowed(write, totals, dim, WindowDim(others, padding_low=edges[0], padding_high=edges[1]), None)


def _windowed(write: Writer, x: Instruction, dim: int, window: WindowDim, sharding: HloSharding | None) -> Instruction:
    windows = tuple(window if d == dim else WindowDim() for d in range(x.shape.rank))
    return write(
        "reduce-window", x, write.inst.operands[1], shape=x.shape, sharding=sharding,
        window=windows, called=write.inst.called,
    )  # fmt: skip


def _without(shape: Shape, dim: int) -> Sequence[int]:
    return tuple(d for d in range(shape.rank) if d != dim)
