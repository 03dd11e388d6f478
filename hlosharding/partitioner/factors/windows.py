"""Pieces that see beyond their own tile: convolution, reduce-window, select-and-scatter along a split dim.

Floor: partitioner.  The halo is exchanged first; what is left is the op with a local window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, Shape, WindowDim, reducer_kind
from hlosharding.partitioner.factors.halo import HaloPlan, Pieces, cut, fetch
from hlosharding.partitioner.factors.pieces import PIECES, Piece, plain_piece
from hlosharding.partitioner.factors.window_plans import halo_plan, real_taps, selection_plans, taps_plan
from hlosharding.rules import Factor, Halo, Reduce, Signature, window_of
from hlosharding.sharding import tile_table
from hlosharding.spmd import Emitter, identity

HALO_OPCODES = frozenset({"convolution", "reduce-window", "select-and-scatter"})
Planner = Callable[[WindowDim, int, int, int], HaloPlan | None]


@dataclass(frozen=True, slots=True)
class Windowed:
    """A factor along which pieces need neighbours' elements."""

    index: int
    """Which window of the op."""
    dim: int
    """The dim of operand 0."""
    out: int
    """The dim of the result."""
    window: WindowDim
    size: int
    result: int
    """Sizes of that dim of operand 0 and of the result (of a select-and-scatter: of its source)."""
    planners: tuple[Planner, ...]
    """Of each operand that is seen through the window."""

    @property
    def is_taps(self) -> bool:
        """Is it the window that is split, not the result?"""
        return self.planners == (taps_plan,)

    def sees(self, operand: int) -> bool:
        """Does a piece need neighbours' elements of this operand?"""
        return operand < len(self.planners)

    def plan(self, ways: int, operand: int = 0) -> HaloPlan | None:
        """What `ways` pieces need; None where no local window does it."""
        return self.planners[operand](self.window, self.size, self.result, ways)


def windows_of(inst: Instruction, signature: Signature) -> tuple[Windowed | None, ...]:
    """Per factor of the op's signature (or of `taps_signature`) the window it runs over, if any."""
    if inst.opcode not in HALO_OPCODES:
        return (None,) * len(signature.factors)
    return tuple(_windowed_factor(inst, signature, n, f) for n, f in enumerate(signature.factors))


def _windowed_factor(inst: Instruction, signature: Signature, number: int, factor: Factor) -> Windowed | None:
    if isinstance(factor.owes, Halo):
        index = factor.owes.window
        dim = next(d for o, d in signature.operand_dims(number) if o == 0)
        out = next(d for _, d in signature.result_dims(number))
        if inst.opcode == "select-and-scatter":
            sizes = inst.shape.dims[dim], inst.operands[1].shape.dims[dim]
            planners = _selection_planner(inst, 0), _selection_planner(inst, 1)
        else:
            sizes = inst.operands[0].shape.dims[dim], inst.shape.leaves[0].dims[out]
            planners = (halo_plan,) * len(inst.shape.leaves)
        # A reversed kernel meets the same places in another order.
        return Windowed(index, dim, out, replace(window_of(inst, index), window_reversal=False), *sizes, planners)
    if factor.name.startswith("taps"):
        index = int(factor.name.removeprefix("taps"))
        dims = inst.conv_dims
        dim, out = dims.input_spatial_dimensions[index], dims.output_spatial_dimensions[index]
        sizes = inst.operands[0].shape.dims[dim], inst.shape.dims[out]
        return Windowed(index, dim, out, inst.window[index], *sizes, (taps_plan,))
    return None


def _selection_planner(inst: Instruction, operand: int) -> Planner:
    select, scatter = inst.called
    orders = select.root.opcode == "compare" and select.root.comparison_direction in ("GE", "LE")
    plain = orders and tuple(select.root.operands) == select.parameters and reducer_kind(scatter) == "add"

    def plan(window: WindowDim, size: int, windows: int, ways: int) -> HaloPlan | None:
        found = selection_plans(window, size, windows, ways) if plain else None
        return None if found is None else found[1] if operand else found[0]

    return plan


def taps_signature(inst: Instruction, signature: Signature) -> Signature | None:
    """Of a convolution: another truth, in which windows are split instead of results, each piece adding its taps.

    That is how the gradient of a filter is computed where both the input and the output gradient are split in space.
    """
    if inst.opcode != "convolution" or not any(isinstance(f.owes, Halo) for f in signature.factors):
        return None
    dims, factors = inst.conv_dims, list(signature.factors)
    operands, results = [list(o) for o in signature.operands], [list(r) for r in signature.results]
    for number, factor in enumerate(signature.factors):
        if isinstance(factor.owes, Halo):
            index = factor.owes.window
            kernel = dims.kernel_spatial_dimensions[index]
            factors[number] = Factor(f"taps{index}", inst.operands[1].shape.dims[kernel], Reduce("add"))
            operands[1][kernel] = (number,)
            results[0][dims.output_spatial_dimensions[index]] = ()
    return Signature(tuple(factors), tuple(map(tuple, operands)), tuple(map(tuple, results)))


def mirrored_dims(inst: Instruction, signature: Signature) -> tuple[tuple[int, ...], ...]:
    """Of each operand the dims whose last tile meets the first one of operand 0: those of reversed taps."""
    taps = [w.index for w in windows_of(inst, signature) if w is not None and w.is_taps]
    reversed_taps = [i for i in taps if inst.window[i].window_reversal]
    kernel = tuple(inst.conv_dims.kernel_spatial_dimensions[i] for i in reversed_taps)
    return tuple(kernel if number == 1 else () for number in range(len(signature.operands)))


@dataclass(frozen=True, slots=True)
class _Split:
    """A split window of one op."""

    windowed: Windowed
    ways: int
    plan: HaloPlan
    """Of operand 0."""
    pieces: Pieces


def _split_windows(piece: Piece) -> list[_Split]:
    """Every split factor that needs neighbours."""
    found: list[_Split] = []
    for number, windowed in enumerate(windows_of(piece.inst, piece.signature)):
        ways, space = piece.ways(number), piece.choice.space
        if windowed is not None and ways > 1:
            plan = windowed.plan(ways)
            assert plan is not None, "a candidate without a plan is never chosen"
            table = tile_table(space, len(piece.signature.factors), space.num_devices or 1)
            pieces = Pieces(space, number, tuple(index[number] for index in table))
            found.append(_Split(windowed, ways, plan, pieces))
    return found


def _fetched(emitter: Emitter, piece: Piece, operand: int, fill: Any) -> Instruction:
    x, shape = piece.operands[operand], piece.inst.operands[operand].shape
    for split in _split_windows(piece):
        plan = split.windowed.plan(split.ways, operand)
        assert plan is not None, "all operands of a window are planned, or none"
        x = fetch(emitter, x, shape, piece.choice.operands[operand], split.windowed.dim, plan, split.pieces, fill)
    return x


def _local_windows(piece: Piece) -> dict[int, WindowDim]:
    return {split.windowed.index: split.plan.window for split in _split_windows(piece)}


def _with_window(piece: Piece, local: dict[int, WindowDim], windows: tuple[WindowDim, ...]) -> tuple[WindowDim, ...]:
    reversals = [w.window_reversal for w in piece.inst.window]
    mine = (local.get(n, w) for n, w in enumerate(windows))
    return tuple(replace(w, window_reversal=r) for w, r in zip(mine, reversals, strict=True))


def _early(piece: Piece, shape: Shape) -> Shape:
    """A local result with the results that pieces begin too early."""
    dims = list(shape.dims)
    for split in _split_windows(piece):
        dims[split.windowed.out] += max(split.plan.lags)
    return shape.with_dims(tuple(dims))


def _on_time(emitter: Emitter, piece: Piece, local: Instruction, number: int = 0) -> Instruction:
    """Result `number` without them."""
    for split in _split_windows(piece):
        if any(split.plan.lags):
            lags, dim = [split.plan.lags[p] for p in split.pieces.numbers], split.windowed.out
            local = cut(emitter, local, dim, lags, piece.result_shapes[number].dims[dim])
    return local


@PIECES.register("convolution")
def _convolution(emitter: Emitter, piece: Piece) -> Instruction:
    local = _local_windows(piece)
    if not local:
        return plain_piece(emitter, piece)
    x = _fetched(emitter, piece, 0, np.zeros((), piece.operands[0].shape.dtype))
    total: Instruction | None = None
    for taps in product(*_taps_apart(piece)):
        made = _with_taps(emitter, piece, x, taps)
        total = made if total is None else emitter.binary("add", total, made)
    assert total is not None, "every window has taps"
    return _on_time(emitter, piece, total)


@dataclass(frozen=True, slots=True)
class _Taps:
    """Taps `low` to `high` of a piece's own, along one split window: all of them count, or none, on each device."""

    split: _Split
    low: int
    high: int
    counting: tuple[bool, ...]
    """Per device."""


def _taps_apart(piece: Piece) -> Iterator[list[_Taps]]:
    """Per split window its taps, apart where they count on some devices only.

    Taps behind the end of an uneven window cannot be masked: an infinity that they meet would become a NaN.
    """
    for split in _split_windows(piece):
        if split.windowed.is_taps:
            real = real_taps(split.windowed.window.size, split.ways)
            if split.windowed.window.window_reversal:
                real = real[::-1]
            bounds = sorted({0, *real})
            yield [_Taps(split, a, b, tuple(real[p] >= b for p in split.pieces.numbers)) for a, b in pairwise(bounds)]


def _with_taps(emitter: Emitter, piece: Piece, x: Instruction, taps: Sequence[_Taps]) -> Instruction:
    """The convolution with some of the taps; zero on devices where they do not count."""
    local, kernel = _local_windows(piece), piece.operands[1]
    starts, limits = [0] * kernel.shape.rank, list(kernel.shape.dims)
    for t in taps:
        windowed, window = t.split.windowed, t.split.plan.window
        dim = piece.inst.conv_dims.kernel_spatial_dimensions[windowed.index]
        starts[dim], limits[dim] = t.low, t.high
        sides = t.low, window.size - t.high
        before, behind = sides[::-1] if windowed.window.window_reversal else sides
        local[windowed.index] = replace(
            window,
            size=t.high - t.low,
            padding_low=window.padding_low - before * window.window_dilation,
            padding_high=window.padding_high - behind * window.window_dilation,
        )
    operands, shape = (x, emitter.slice(kernel, starts, limits)), _early(piece, piece.shape)
    made = plain_piece(emitter, piece, operands, shape=shape, window=lambda w: _with_window(piece, local, w))
    counting = [int(all(t.counting[device] for t in taps)) for device in range(emitter.num_partitions)]
    if all(counting):
        return made
    counts = emitter.compare(emitter.per_device(counting), "EQ", emitter.constant(np.int32(1)))
    return emitter.select(counts, made, emitter.full(np.zeros((), shape.dtype), shape))


@PIECES.register("reduce-window")
def _reduce_window(emitter: Emitter, piece: Piece) -> Instruction:
    local = _local_windows(piece)
    if not local:
        return plain_piece(emitter, piece)
    count = len(piece.operands) // 2
    inits = piece.operands[count:]
    runs = (_fetched(emitter, piece, i, inits[i]) for i in range(count))
    leaves = tuple(_early(piece, shape) for shape in piece.result_shapes)
    shape = Shape.tuple(leaves) if piece.inst.shape.is_tuple else leaves[0]
    made = plain_piece(
        emitter, piece, (*runs, *inits), shape=shape, window=lambda w: _with_window(piece, local, piece.inst.window)
    )
    if not made.shape.is_tuple:
        return _on_time(emitter, piece, made)
    timely = [_on_time(emitter, piece, part, i) for i, part in enumerate(emitter.elements(made))]
    return emitter.op("tuple", piece.shape, timely)


@PIECES.register("select-and-scatter")
def _select_and_scatter(emitter: Emitter, piece: Piece) -> Instruction:
    split = _split_windows(piece)
    if not split:
        return plain_piece(emitter, piece)
    init, source = piece.operands[2], piece.inst.operands[1].shape
    # Nothing outside the array is ever selected, and windows outside of it scatter nothing.
    largest = piece.inst.called[0].root.comparison_direction == "GE"
    x = _fetched(emitter, piece, 0, identity("maximum" if largest else "minimum", piece.inst.shape))
    rows = _fetched(emitter, piece, 1, identity("add", source))
    local = _local_windows(piece)
    windows = tuple(local.get(n, w) for n, w in enumerate(piece.inst.window))
    made = plain_piece(emitter, piece, (x, rows, init), shape=x.shape, window=lambda _: windows)
    for s in split:
        plans = selection_plans(s.windowed.window, s.windowed.size, s.windowed.result, s.ways)
        assert plans is not None, "planned above"
        begins = plans[2]
        made = cut(emitter, made, s.windowed.dim, [begins[p] for p in s.pieces.numbers], s.plan.tile)
    return made
