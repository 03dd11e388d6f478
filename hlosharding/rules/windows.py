"""Ops whose result sees a window of the operand: reduce-window, select-and-scatter, pad, slice; and that window.

Floor: rules.
"""

from __future__ import annotations

from hlosharding.errors import RuleError
from hlosharding.ir import Instruction, WindowDim
from hlosharding.rules.signature import Signature, same_dims


def reduce_window(inst: Instruction) -> Signature:
    """Dims without a real window pass, the others need a halo.  Nothing spreads through dilations, as in XLA."""
    spreads = all(w.is_undilated for w in inst.window)
    return same_dims(inst, halo=_real_windows(inst), spreads=spreads)


def select_and_scatter(inst: Instruction) -> Signature:
    """Operand and result share each dim; the source does where it has one element per window."""
    spreads = all(w.base_dilation == 1 for w in inst.window)
    return same_dims(inst, halo=_real_windows(inst), spreads=spreads)


def _real_windows(inst: Instruction) -> list[int]:
    return [dim for dim, window in enumerate(inst.window) if not window.is_trivial]


def pad(inst: Instruction) -> Signature:
    """Padded dims need a halo, the others pass; the padding value is a scalar."""
    return same_dims(inst, halo=[d for d, p in enumerate(inst.padding) if (p.low, p.high, p.interior) != (0, 0, 0)])


def slice_(inst: Instruction) -> Signature:
    """Cut dims need a halo (elements from other pieces), the others pass."""
    dims = inst.operands[0].shape.dims
    whole = [(s.start, s.limit, s.stride) == (0, size, 1) for s, size in zip(inst.slice_dims, dims, strict=True)]
    return same_dims(inst, halo=[d for d, is_whole in enumerate(whole) if not is_whole])


def window_of(inst: Instruction, index: int) -> WindowDim:
    """The window behind a `Halo(index)`: element o of the result sees, for k < size, place

        o * stride + k * window_dilation - padding_low

    of the operand with base_dilation - 1 gaps between its elements; places outside are padding.  A pad and a slice are
    windows of size 1, the one with base dilation, the other with a stride.  (Of select-and-scatter: the source's
    element o sees the operand so, and gives to it.)  Reverse has none: its piece is the mirrored one.
    """
    match inst.opcode:
        case "pad":
            p = inst.padding[index]
            return WindowDim(1, 1, p.low, p.high, 1, p.interior + 1)
        case "slice":
            s, size = inst.slice_dims[index], inst.operands[0].shape.dims[index]
            return WindowDim(1, s.stride, -s.start, s.limit - size)
        case "convolution" | "reduce-window" | "select-and-scatter":
            return inst.window[index]
        case _:
            raise RuleError(f"{inst.opcode} has no window", where=repr(inst))
