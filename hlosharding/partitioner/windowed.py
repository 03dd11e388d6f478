"""Pieces that see beyond their own tile: convolution, reduce-window, pad and slice along a split dim.

Floor: partitioner.  The halo is exchanged first; what is left is the op with a local window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, PaddingDim, SliceDim, WindowDim
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.halo import HaloPlan, fetch, halo_plan
from hlosharding.partitioner.pieces import PIECES, Piece, plain_piece
from hlosharding.rules import Halo, Signature, local_attributes, window_of

HALO_OPCODES = frozenset({"convolution", "reduce-window", "pad", "slice"})


def windows_of(inst: Instruction, signature: Signature) -> tuple[WindowDim | None, ...]:
    """The window behind each factor that owes a halo."""
    if inst.opcode not in HALO_OPCODES:
        return (None,) * len(signature.factors)
    return tuple(_places(inst, f.owes.window) if isinstance(f.owes, Halo) else None for f in signature.factors)


def _places(inst: Instruction, index: int) -> WindowDim:
    """The window as a set of places: in which order the kernel meets them does not matter."""
    return replace(window_of(inst, index), window_reversal=False)


def _split_windows(piece: Piece) -> Iterator[tuple[int, int, HaloPlan]]:
    """(index of the window, operand dim, plan) of every split dim that needs a halo."""
    for number, factor in enumerate(piece.signature.factors):
        ways = piece.ways(number)
        if not isinstance(factor.owes, Halo) or ways == 1:
            continue
        dim = next(d for o, d in piece.signature.operand_dims(number) if o == 0)
        out = next(d for _, d in piece.signature.result_dims(number))
        window = _places(piece.inst, factor.owes.window)
        plan = halo_plan(window, piece.inst.operands[0].shape.dims[dim], piece.inst.shape.leaves[0].dims[out], ways)
        assert plan is not None, "a candidate without a halo plan is never chosen"
        yield factor.owes.window, dim, plan


def _fetched(emitter: Emitter, piece: Piece, operand: int, fill: Any) -> Instruction:
    x, shape = piece.operands[operand], piece.inst.operands[operand].shape
    for _, dim, plan in _split_windows(piece):
        x = fetch(emitter, x, shape, piece.choice.operands[operand], dim, plan, fill)
    return x


def _windowed(prepare: Callable[[Emitter, Piece], tuple[Instruction, ...]], attribute: Callable[[Piece], dict[str, Any]]):
    def compute(emitter: Emitter, piece: Piece) -> Instruction:
        if not any(True for _ in _split_windows(piece)):
            return plain_piece(emitter, piece)
        operands = prepare(emitter, piece)
        result = piece.result_shapes[0].dims
        attributes = local_attributes(piece.inst, [o.shape.dims for o in operands], result)
        return emitter.local(piece.inst, piece.shape, operands, **{**attributes, **attribute(piece)})

    return compute


def _window(piece: Piece) -> dict[str, Any]:
    local = {number: plan.window for number, _, plan in _split_windows(piece)}
    return {"window": tuple(local.get(number, window) for number, window in enumerate(piece.inst.window))}


def _convolution(emitter: Emitter, piece: Piece) -> tuple[Instruction, ...]:
    zero = np.zeros((), piece.operands[0].shape.dtype)
    return _fetched(emitter, piece, 0, zero), *piece.operands[1:]


def _convolution_attributes(piece: Piece) -> dict[str, Any]:
    found = _window(piece)
    reversals = [w.window_reversal for w in piece.inst.window]
    return {"window": tuple(replace(w, window_reversal=r) for w, r in zip(found["window"], reversals, strict=True))}


def _reduce_window(emitter: Emitter, piece: Piece) -> tuple[Instruction, ...]:
    count = len(piece.operands) // 2
    inits = piece.operands[count:]
    return *(_fetched(emitter, piece, i, inits[i]) for i in range(count)), *inits


def _padding_value(emitter: Emitter, piece: Piece) -> tuple[Instruction, ...]:
    return _fetched(emitter, piece, 0, piece.operands[1]), piece.operands[1]


def _padding(piece: Piece) -> dict[str, Any]:
    local = {n: PaddingDim(p.window.padding_low, p.window.padding_high, p.window.base_dilation - 1) for n, _, p in _split_windows(piece)}
    return {"padding": tuple(local.get(number, dim) for number, dim in enumerate(piece.inst.padding))}


def _sliced(emitter: Emitter, piece: Piece) -> tuple[Instruction, ...]:
    return (_fetched(emitter, piece, 0, np.zeros((), piece.operands[0].shape.dtype)),)


def _slices(piece: Piece) -> dict[str, Any]:
    local = {n: SliceDim(0, p.count, p.window.stride) for n, _, p in _split_windows(piece)}
    whole = zip(piece.inst.slice_dims, piece.inst.operands[0].shape.dims, piece.operands[0].shape.dims, strict=True)
    plain = [SliceDim(0, mine, 1) if mine != size else d for d, size, mine in whole]
    return {"slice_dims": tuple(local.get(number, dim) for number, dim in enumerate(plain))}


PIECES.add("convolution", _windowed(_convolution, _convolution_attributes))
PIECES.add("reduce-window", _windowed(_reduce_window, _window))
PIECES.add("pad", _windowed(_padding_value, _padding))
PIECES.add("slice", _windowed(_sliced, _slices))
