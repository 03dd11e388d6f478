"""Pieces that see beyond their own tile: convolution, reduce-window, select-and-scatter, pad, slice along a split dim.

Floor: partitioner.  The halo is exchanged first; what is left is the op with a local window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, PaddingDim, SliceDim, WindowDim
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.halo import HaloPlan, fetch, halo_plan, selection_plans, taps_plan
from hlosharding.partitioner.masking import identity
from hlosharding.partitioner.pieces import PIECES, Piece, plain_piece
from hlosharding.rules import Factor, Halo, Reduce, Signature, reducer_kind, window_of

HALO_OPCODES = frozenset({"convolution", "reduce-window", "select-and-scatter", "pad", "slice"})


@dataclass(frozen=True, slots=True)
class Windowed:
    """A factor along which pieces need neighbours' elements."""

    index: int
    """Which window of the op."""
    dim: int
    """The dim of operand 0."""
    window: WindowDim
    size: int
    result: int
    """Sizes of that dim of operand 0 and of the result (of a select-and-scatter: of its source)."""
    planner: Callable[[WindowDim, int, int, int], HaloPlan | None]

    def plan(self, ways: int) -> HaloPlan | None:
        """What `ways` pieces need; None where no halo will do."""
        return self.planner(self.window, self.size, self.result, ways)


def windows_of(inst: Instruction, signature: Signature) -> tuple[Windowed | None, ...]:
    """Per factor of the op's signature (or of `taps_signature`) the window it runs over, if any."""
    if inst.opcode not in HALO_OPCODES:
        return (None,) * len(signature.factors)
    return tuple(_windowed_factor(inst, signature, n, f) for n, f in enumerate(signature.factors))


def _windowed_factor(inst: Instruction, signature: Signature, number: int, factor: Factor) -> Windowed | None:
    if isinstance(factor.owes, Halo):
        index = factor.owes.window
        dim = next(d for o, d in signature.operand_dims(number) if o == 0)
        if inst.opcode == "select-and-scatter":
            sizes, planner = (inst.shape.dims[dim], inst.operands[1].shape.dims[dim]), _selection_plan(inst)
        else:
            out = next(d for _, d in signature.result_dims(number))
            sizes, planner = (inst.operands[0].shape.dims[dim], inst.shape.leaves[0].dims[out]), halo_plan
        # A reversed kernel meets the same places in another order.
        return Windowed(index, dim, replace(window_of(inst, index), window_reversal=False), *sizes, planner)
    if factor.name.startswith("taps"):
        index = int(factor.name.removeprefix("taps"))
        dims = inst.conv_dims
        dim, out = dims.input_spatial_dimensions[index], dims.output_spatial_dimensions[index]
        return Windowed(
            index, dim, inst.window[index], inst.operands[0].shape.dims[dim], inst.shape.dims[out], taps_plan
        )
    return None


def _selection_plan(inst: Instruction) -> Callable[[WindowDim, int, int, int], HaloPlan | None]:
    select, scatter = inst.called
    orders = select.root.opcode == "compare" and select.root.comparison_direction in ("GE", "LE")
    plain = orders and tuple(select.root.operands) == select.parameters and reducer_kind(scatter) == "add"

    def plan(window: WindowDim, size: int, windows: int, ways: int) -> HaloPlan | None:
        found = selection_plans(window, size, windows, ways) if plain else None
        return None if found is None else found[0]

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


def _split_windows(piece: Piece) -> Iterator[tuple[Windowed, int, HaloPlan]]:
    """Every split factor that needs neighbours, how often it is split, and the plan."""
    for number, windowed in enumerate(windows_of(piece.inst, piece.signature)):
        ways = piece.ways(number)
        if windowed is not None and ways > 1:
            plan = windowed.plan(ways)
            assert plan is not None, "a candidate without a halo plan is never chosen"
            yield windowed, ways, plan


def _fetched(emitter: Emitter, piece: Piece, operand: int, fill: Any) -> Instruction:
    x, shape = piece.operands[operand], piece.inst.operands[operand].shape
    for windowed, _, plan in _split_windows(piece):
        x = fetch(emitter, x, shape, piece.choice.operands[operand], windowed.dim, plan, fill)
    return x


def _local_windows(piece: Piece) -> dict[int, WindowDim]:
    return {windowed.index: plan.window for windowed, _, plan in _split_windows(piece)}


def _with_window(piece: Piece, windows: tuple[WindowDim, ...]) -> tuple[WindowDim, ...]:
    local = _local_windows(piece)
    reversals = [w.window_reversal for w in piece.inst.window]
    mine = (local.get(n, w) for n, w in enumerate(windows))
    return tuple(replace(w, window_reversal=r) for w, r in zip(mine, reversals, strict=True))


@PIECES.register("convolution")
def _convolution(emitter: Emitter, piece: Piece) -> Instruction:
    if not _local_windows(piece):
        return plain_piece(emitter, piece)
    x = _fetched(emitter, piece, 0, np.zeros((), piece.operands[0].shape.dtype))
    return plain_piece(emitter, piece, (x, *piece.operands[1:]), window=lambda w: _with_window(piece, w))


@PIECES.register("reduce-window")
def _reduce_window(emitter: Emitter, piece: Piece) -> Instruction:
    if not _local_windows(piece):
        return plain_piece(emitter, piece)
    count = len(piece.operands) // 2
    inits = piece.operands[count:]
    runs = (_fetched(emitter, piece, i, inits[i]) for i in range(count))
    return plain_piece(emitter, piece, (*runs, *inits), window=lambda _: _with_window(piece, piece.inst.window))


@PIECES.register("pad")
def _pad(emitter: Emitter, piece: Piece) -> Instruction:
    local = _local_windows(piece)
    if not local:
        return plain_piece(emitter, piece)
    padding = tuple(
        PaddingDim(local[n].padding_low, local[n].padding_high, local[n].base_dilation - 1) if n in local else dim
        for n, dim in enumerate(piece.inst.padding)
    )
    return plain_piece(
        emitter, piece, (_fetched(emitter, piece, 0, piece.operands[1]), piece.operands[1]), padding=lambda _: padding
    )


@PIECES.register("slice")
def _slice(emitter: Emitter, piece: Piece) -> Instruction:
    local = {windowed.index: SliceDim(0, p.count, p.window.stride) for windowed, _, p in _split_windows(piece)}
    if not local:
        return plain_piece(emitter, piece)
    x = _fetched(emitter, piece, 0, np.zeros((), piece.operands[0].shape.dtype))
    whole = zip(piece.inst.slice_dims, piece.inst.operands[0].shape.dims, piece.operands[0].shape.dims, strict=True)
    plain = [SliceDim(0, mine, 1) if mine != size else d for d, size, mine in whole]
    cuts = tuple(local.get(number, dim) for number, dim in enumerate(plain))
    return plain_piece(emitter, piece, (x,), slice_dims=lambda _: cuts)


@PIECES.register("select-and-scatter")
def _select_and_scatter(emitter: Emitter, piece: Piece) -> Instruction:
    split = list(_split_windows(piece))
    if not split:
        return plain_piece(emitter, piece)
    x, source, init = piece.operands
    # Nothing outside the array is ever selected, and windows outside of it scatter nothing.
    largest = piece.inst.called[0].root.comparison_direction == "GE"
    never = identity("maximum" if largest else "minimum", x.shape)
    starts, limits = [0] * x.shape.rank, list(piece.result_shapes[0].dims)
    windows = list(piece.inst.window)
    for windowed, ways, _ in split:
        plans = selection_plans(windowed.window, windowed.size, windowed.result, ways)
        assert plans is not None
        operand, rows, begin = plans
        dim = windowed.dim
        x = fetch(emitter, x, piece.inst.operands[0].shape, piece.choice.operands[0], dim, operand, never)
        zero = identity("add", source.shape)
        source = fetch(emitter, source, piece.inst.operands[1].shape, piece.choice.operands[1], dim, rows, zero)
        starts[dim], limits[dim] = begin, begin + operand.tile
        windows[windowed.index] = operand.window
    local = plain_piece(emitter, piece, (x, source, init), shape=x.shape, window=lambda _: tuple(windows))
    return emitter.slice(local, starts, limits)
