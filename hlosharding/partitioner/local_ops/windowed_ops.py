"""Convolution, reduce-window and select-and-scatter along split dims: the halo is exchanged, then a local window runs.

Floor: partitioner.  A tile of the result needs elements of neighbouring tiles along factors that run over windows.  A
convolution has two signatures: of one the results are split, of the other (`taps_signature`) the windows.  What each
device needs say the plans in `window_plans`, which has the halo exchange, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise, product
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, Shape, WindowDim, reducer_kind
from hlosharding.partitioner.local_ops.local_op import LocalOp, emit_same_op
from hlosharding.partitioner.local_ops.window_plans import (
    FactorTiles,
    HaloExchange,
    HaloPlan,
    cut_out,
    exchange_halo,
    no_plan,
    real_taps,
    selection_operand_plan,
    selection_plan,
    selection_source_plan,
    split_result_plan,
    split_window_plan,
)
from hlosharding.rules import Factor, Halo, Reduce, Signature, window_of
from hlosharding.sharding import tile_table
from hlosharding.spmd import Emitter, identity

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
    planners = (split_result_plan,) * len(inst.shape.leaves)
    return _along_windows(inst, signature, inst.operands[0].shape, inst.shape.leaves[0], planners, may_run=True)


def selection_factors(inst: Instruction, signature: Signature) -> WindowedFactors:
    """The windows of a select-and-scatter, per factor: its operand and its source are both seen through them."""
    # What other selections never select, to fill the places beyond the array with, nobody knows; and where no sum is
    # scattered, the zeros of windows beyond it would count.
    is_plain = _selects_largest_or_smallest(inst)
    planners = (selection_operand_plan, selection_source_plan) if is_plain else (no_plan, no_plan)
    return _along_windows(inst, signature, inst.shape, inst.operands[1].shape, planners)


def _selects_largest_or_smallest(inst: Instruction) -> bool:
    """Does it select by `>=` or `<=` on its two parameters, and add what it scatters?"""
    select, scatter = inst.called
    compares = select.root.opcode == "compare" and select.root.comparison_direction in ("GE", "LE")
    return compares and tuple(select.root.operands) == select.parameters and reducer_kind(scatter) == "add"


def convolution_factors(inst: Instruction, signature: Signature) -> WindowedFactors:
    """The windows of a convolution, per factor of its signature or of `taps_signature`."""
    windows = _along_windows(inst, signature, inst.operands[0].shape, inst.shape, (split_result_plan,))
    return tuple(w or _taps_window(inst, f) for w, f in zip(windows, signature.factors, strict=True))


def _along_windows(
    inst: Instruction,
    signature: Signature,
    before: Shape,
    after: Shape,
    planners: tuple[Planner, ...],
    *,
    may_run: bool = False,
) -> WindowedFactors:
    """The windows between two shapes, per factor; `may_run`: a running sum adds but one to what it has.

    None is reversed: a reversed kernel meets the same places in another order.
    """

    def windowed(number: int, owes: Halo) -> WindowedFactor:
        dim = next(d for operand, d in signature.operand_dims(number) if operand == 0)
        result_dim = next(d for _, d in signature.result_dims(number))
        window = replace(window_of(inst, owes.window), window_reversal=False)
        sizes = before.dims[dim], after.dims[result_dim]
        taps = 1 if may_run and window.is_running(sizes[0]) else window.size
        return WindowedFactor(owes.window, dim, result_dim, window, *sizes, planners, taps)

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


@dataclass(frozen=True, slots=True)
class _SplitWindow:
    """A split factor that needs neighbours' elements."""

    factor: WindowedFactor
    num_tiles: int
    plan: HaloPlan
    """Of operand 0."""
    tiles: FactorTiles

    @property
    def index(self) -> int:
        """Which window of the op."""
        return self.factor.index


_SplitWindows = Sequence[_SplitWindow]


def _split_windows(op: LocalOp, factors: WindowedFactors) -> list[_SplitWindow]:
    space, found = op.choice.space, list[_SplitWindow]()
    for number, factor in enumerate(factors):
        num_tiles = op.num_tiles(number)
        if factor is not None and num_tiles > 1:
            plan = factor.plan(num_tiles)
            assert plan is not None, "a candidate without a plan is never chosen"
            table = tile_table(space, len(factors), space.num_devices or 1)
            tiles = FactorTiles(space, number, tuple(index[number] for index in table))
            found.append(_SplitWindow(factor, num_tiles, plan, tiles))
    return found


def _with_halos(emitter: Emitter, op: LocalOp, windows: _SplitWindows, operand: int, fill: Any) -> Instruction:
    """A local operand with what its device needs of its neighbours, in every split window."""
    x, sharding, dims = op.operands[operand], op.choice.operands[operand], op.inst.operands[operand].shape.dims
    for split in windows:
        plan, dim = split.factor.plan(split.num_tiles, operand), split.factor.dim
        assert plan is not None, "all operands of a window are planned, or none"
        is_split = sharding.num_tiles_along(dim) > 1
        x = exchange_halo(emitter, x, HaloExchange(dim, dims[dim], is_split, plan, split.tiles, fill))
    return x


def _with_windows(op: LocalOp, windows: tuple[WindowDim, ...], local: dict[int, WindowDim]) -> tuple[WindowDim, ...]:
    """The op's windows with those of split factors replaced, each as reversed as it was."""
    mine = (local.get(n, w) for n, w in enumerate(windows))
    return tuple(replace(w, window_reversal=o.window_reversal) for w, o in zip(mine, op.inst.window, strict=True))


def _planned(windows: _SplitWindows) -> dict[int, WindowDim]:
    return {split.index: split.plan.window for split in windows}


def _with_early_results(shape: Shape, windows: _SplitWindows) -> Shape:
    """A local result's shape with the results by which devices begin too early."""
    dims = list(shape.dims)
    for split in windows:
        dims[split.factor.result_dim] += max(split.plan.lags)
    return shape.with_dims(tuple(dims))


def _without_early_results(
    emitter: Emitter, op: LocalOp, windows: _SplitWindows, made: Instruction, leaf: int = 0
) -> Instruction:
    """Result leaf number `leaf` without them."""
    for split in windows:
        if any(split.plan.lags):
            lags, dim = [split.plan.lags[t] for t in split.tiles.numbers], split.factor.result_dim
            made = cut_out(emitter, made, dim, lags, op.result_shapes[leaf].dims[dim])
    return made


# ---- convolution


def emit_convolution(emitter: Emitter, op: LocalOp) -> Instruction:
    """A convolution; where windows are split, the sum over those runs of taps that count on the same devices."""
    windows = _split_windows(op, convolution_factors(op.inst, op.signature))
    if not windows:
        return emit_same_op(emitter, op)
    x = _with_halos(emitter, op, windows, 0, np.zeros((), op.operands[0].shape.dtype))
    made = (_with_taps(emitter, op, windows, x, taps) for taps in product(*_taps_apart(windows)))
    total = reduce(partial(emitter.binary, "add"), made)
    return _without_early_results(emitter, op, windows, total)


@dataclass(frozen=True, slots=True)
class _Taps:
    """Taps `low` to `high` of a device's own, along one split window: on each device all of them count, or none."""

    split: _SplitWindow
    low: int
    high: int
    counting: tuple[bool, ...]
    """Per device."""

    @property
    def window(self) -> WindowDim:
        """The local window with these taps alone: their places stay the same, so the rest becomes padding."""
        window = self.split.plan.window
        sides = self.low, window.size - self.high
        # Reversed, the first taps meet the last places.
        before, behind = sides[::-1] if self.split.factor.window.window_reversal else sides
        return replace(
            window,
            size=self.high - self.low,
            padding_low=window.padding_low - before * window.window_dilation,
            padding_high=window.padding_high - behind * window.window_dilation,
        )


def _taps_apart(windows: _SplitWindows) -> Iterator[list[_Taps]]:
    """Per split window its taps, apart where they count on some devices only.

    Taps behind the end of an uneven window cannot be masked: an infinity that they meet would become a NaN.
    """
    for split in windows:
        if split.factor.is_taps:
            real = real_taps(split.factor.window.size, split.num_tiles)
            if split.factor.window.window_reversal:
                real = real[::-1]
            bounds = sorted({0, *real})
            yield [_Taps(split, a, b, tuple(real[t] >= b for t in split.tiles.numbers)) for a, b in pairwise(bounds)]


def _with_taps(
    emitter: Emitter, op: LocalOp, windows: _SplitWindows, x: Instruction, taps: Sequence[_Taps]
) -> Instruction:
    """The convolution with some of the taps; zero on devices where they do not count."""
    kernel, local = op.operands[1], _planned(windows)
    starts, limits = [0] * kernel.shape.rank, list(kernel.shape.dims)
    for t in taps:
        dim = op.inst.conv_dims.kernel_spatial_dimensions[t.split.index]
        starts[dim], limits[dim] = t.low, t.high
        local[t.split.index] = t.window
    operands, shape = (x, emitter.slice(kernel, starts, limits)), _with_early_results(op.shape, windows)
    # Other spatial dims keep the windows that the local op would have.
    made = emit_same_op(emitter, op, operands, shape=shape, window=lambda w: _with_windows(op, w, local))
    counting = [int(all(t.counting[device] for t in taps)) for device in range(emitter.num_partitions)]
    if all(counting):
        return made
    counts = emitter.compare(emitter.per_device(counting), "EQ", emitter.constant(np.int32(1)))
    return emitter.select(counts, made, emitter.full(np.zeros((), shape.dtype), shape))


# ---- reduce-window, select-and-scatter


def emit_reduce_window(emitter: Emitter, op: LocalOp) -> Instruction:
    """A reduction over a sliding window, of one array or of several at once."""
    windows = _split_windows(op, reduce_window_factors(op.inst, op.signature))
    if not windows:
        return emit_same_op(emitter, op)
    count = len(op.operands) // 2
    inits = op.operands[count:]
    # XLA, too, pads a reduce-window by its initial values.
    arrays = (_with_halos(emitter, op, windows, n, inits[n]) for n in range(count))
    leaves = tuple(_with_early_results(shape, windows) for shape in op.result_shapes)
    shape = Shape.tuple(leaves) if op.inst.shape.is_tuple else leaves[0]
    local = _with_windows(op, op.inst.window, _planned(windows))
    made = emit_same_op(emitter, op, (*arrays, *inits), shape=shape, window=lambda _: local)
    if not made.shape.is_tuple:
        return _without_early_results(emitter, op, windows, made)
    parts = enumerate(emitter.elements(made))
    on_time = [_without_early_results(emitter, op, windows, part, leaf) for leaf, part in parts]
    return emitter.op("tuple", op.shape, on_time)


def emit_select_and_scatter(emitter: Emitter, op: LocalOp) -> Instruction:
    """All windows that touch the device's tile, each whole; what they scatter beyond the tile is cut off."""
    windows = _split_windows(op, selection_factors(op.inst, op.signature))
    if not windows:
        return emit_same_op(emitter, op)
    init, source = op.operands[2], op.inst.operands[1].shape
    # Nothing outside the array is ever selected, and windows outside of it scatter nothing.
    largest = op.inst.called[0].root.comparison_direction == "GE"
    x = _with_halos(emitter, op, windows, 0, identity("maximum" if largest else "minimum", op.inst.shape))
    rows = _with_halos(emitter, op, windows, 1, identity("add", source))
    local = _with_windows(op, op.inst.window, _planned(windows))
    made = emit_same_op(emitter, op, (x, rows, init), shape=x.shape, window=lambda _: local)
    for split in windows:
        factor = split.factor
        plan = selection_plan(factor.window, factor.size, factor.result_size, split.num_tiles)
        assert plan is not None, "planned above"
        offsets = [plan.begins[t] for t in split.tiles.numbers]
        made = cut_out(emitter, made, factor.dim, offsets, split.plan.tile)
    return made
