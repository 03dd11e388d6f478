"""Factors along which a tile of the result needs elements of neighbouring tiles: which window each runs over.

Floor: partitioner.  Looks at instructions and signatures alone.  A convolution has two signatures: of one the results
are split, of the other (`taps_signature`) the windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hlosharding.ir import Instruction, WindowDim, reducer_kind
from hlosharding.partitioner.local_ops.halo import HaloPlan
from hlosharding.partitioner.local_ops.window_plans import (
    no_plan,
    selection_operand_plan,
    selection_source_plan,
    split_result_plan,
    split_window_plan,
)
from hlosharding.rules import Factor, Halo, Reduce, Signature, window_of

Planner = Callable[[WindowDim, int, int, int], HaloPlan | None]
"""From a window, the dim's size before and behind it, and the number of tiles to what each tile needs."""


@dataclass(frozen=True, slots=True)
class WindowedFactor:
    """A factor along which a tile of the result needs elements of neighbouring tiles."""

    index: int
    """Which window of the op."""
    dim: int
    """The dim of operand 0."""
    result_dim: int
    window: WindowDim
    size: int
    """Of that dim of operand 0."""
    result_size: int
    """Of that dim of the result (of a select-and-scatter: of its source)."""
    planners: tuple[Planner, ...]
    """Of each operand that is seen through the window."""
    products: int
    """How many are computed at each place along the factor: taps of a result, or results of a tap.

    Signatures of one op that name either have the same work.
    """

    @property
    def is_taps(self) -> bool:
        """Is it the window that is split, not the result?"""
        return self.planners == (split_window_plan,)

    def sees(self, operand: int) -> bool:
        """Does a tile need neighbours' elements of this operand?"""
        return operand < len(self.planners)

    def plan(self, num_tiles: int, operand: int = 0) -> HaloPlan | None:
        """What the tiles need of an operand; None where no local window does it."""
        return self.planners[operand](self.window, self.size, self.result_size, num_tiles)


WindowedFactors = tuple[WindowedFactor | None, ...]
"""Per factor of a signature; None for those along which nothing of neighbours is needed."""


def reduce_window_factors(inst: Instruction, signature: Signature) -> WindowedFactors:
    """The windows of a reduce-window, per factor."""

    def windowed(number: int, owes: Halo) -> WindowedFactor:
        dim, result_dim = _dims(signature, number)
        sizes = inst.operands[0].shape.dims[dim], inst.shape.leaves[0].dims[result_dim]
        planners, window = (split_result_plan,) * len(inst.shape.leaves), _forward(inst, owes)
        taps = 1 if window.is_running(sizes[0]) else window.size  # a running sum adds one to what it has
        return WindowedFactor(owes.window, dim, result_dim, window, *sizes, planners, taps)

    return _where_halo(signature, windowed)


def selection_factors(inst: Instruction, signature: Signature) -> WindowedFactors:
    """The windows of a select-and-scatter, per factor: its operand and its source are both seen through them."""
    is_plain = _selects_largest_or_smallest(inst)
    planners = (selection_operand_plan, selection_source_plan) if is_plain else (no_plan, no_plan)

    def windowed(number: int, owes: Halo) -> WindowedFactor:
        dim, result_dim = _dims(signature, number)
        sizes = inst.shape.dims[dim], inst.operands[1].shape.dims[dim]
        window = _forward(inst, owes)
        return WindowedFactor(owes.window, dim, result_dim, window, *sizes, planners, window.size)

    return _where_halo(signature, windowed)


def _selects_largest_or_smallest(inst: Instruction) -> bool:
    """Does it select by `>=` or `<=` on its two parameters, and add what it scatters?"""
    select, scatter = inst.called
    compares = select.root.opcode == "compare" and select.root.comparison_direction in ("GE", "LE")
    return compares and tuple(select.root.operands) == select.parameters and reducer_kind(scatter) == "add"


def convolution_factors(inst: Instruction, signature: Signature) -> WindowedFactors:
    """The windows of a convolution, per factor of its signature or of `taps_signature`."""

    def windowed(number: int, owes: Halo) -> WindowedFactor:
        dim, result_dim = _dims(signature, number)
        sizes = inst.operands[0].shape.dims[dim], inst.shape.dims[result_dim]
        window = _forward(inst, owes)
        return WindowedFactor(owes.window, dim, result_dim, window, *sizes, (split_result_plan,), window.size)

    windows = _where_halo(signature, windowed)
    return tuple(w or _taps_window(inst, f) for w, f in zip(windows, signature.factors, strict=True))


def _dims(signature: Signature, factor: int) -> tuple[int, int]:
    """The dim of operand 0 and of the result that carry the factor."""
    dim = next(d for operand, d in signature.operand_dims(factor) if operand == 0)
    return dim, next(d for _, d in signature.result_dims(factor))


def _forward(inst: Instruction, owes: Halo) -> WindowDim:
    """The window, not reversed: a reversed kernel meets the same places in another order."""
    return replace(window_of(inst, owes.window), window_reversal=False)


def _where_halo(signature: Signature, windowed: Callable[[int, Halo], WindowedFactor]) -> WindowedFactors:
    owes = (f.owes for f in signature.factors)
    return tuple(windowed(n, o) if isinstance(o, Halo) else None for n, o in enumerate(owes))


# ---- convolutions whose windows are split

_TAPS = "taps"


def taps_signature(inst: Instruction, signature: Signature) -> Signature | None:
    """An alternative signature of a convolution, in which windows are split instead of results: each device adds up
    its own taps.

    That is how the gradient of a filter is computed where both the input and the output gradient are split in space.
    """
    if not any(isinstance(f.owes, Halo) for f in signature.factors):
        return None
    dims, factors = inst.conv_dims, list(signature.factors)
    operands, results = [list(o) for o in signature.operands], [list(r) for r in signature.results]
    for number, factor in enumerate(signature.factors):
        if isinstance(factor.owes, Halo):
            index = factor.owes.window
            kernel = dims.kernel_spatial_dimensions[index]
            factors[number] = Factor(f"{_TAPS}{index}", inst.operands[1].shape.dims[kernel], Reduce("add"))
            operands[1][kernel] = (number,)
            results[0][dims.output_spatial_dimensions[index]] = ()
    return Signature(tuple(factors), tuple(map(tuple, operands)), tuple(map(tuple, results)))


def _taps_window(inst: Instruction, factor: Factor) -> WindowedFactor | None:
    """The window that a factor of `taps_signature` is."""
    if not factor.name.startswith(_TAPS):
        return None
    index, dims = int(factor.name.removeprefix(_TAPS)), inst.conv_dims
    dim, result_dim = dims.input_spatial_dimensions[index], dims.output_spatial_dimensions[index]
    sizes = inst.operands[0].shape.dims[dim], inst.shape.dims[result_dim]
    return WindowedFactor(index, dim, result_dim, inst.window[index], *sizes, (split_window_plan,), sizes[1])


def reversed_taps_dims(inst: Instruction, windows: WindowedFactors) -> tuple[int, ...]:
    """Dims of a convolution's kernel whose last tile meets the first tile of the input: those of reversed taps."""
    taps = [w.index for w in windows if w is not None and w.is_taps and w.window.window_reversal]
    return tuple(inst.conv_dims.kernel_spatial_dimensions[index] for index in taps)
