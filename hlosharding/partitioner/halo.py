"""Halo exchange: give each device a run of elements along one dim that starts and ends beyond its own tile.

Floor: partitioner.  Strips travel between neighbours by permutes, one per direction and distance, no more than is
needed; what lies outside the array is filled.  Works for uneven tiles, for several hops and for negative padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, Shape, WindowDim
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.masking import inside
from hlosharding.partitioner.projection import tile_table
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class HaloPlan:
    """What the pieces of one windowed dim need: piece p computes a result tile from `count` elements at `starts[p]`."""

    tile: int
    """Elements of the operand a device holds."""
    starts: tuple[int, ...]
    """First element of the operand each piece takes; may lie before the array."""
    count: int
    runs: tuple[tuple[int, int], ...]
    """Of each piece the first element inside the array that it needs, and one past the last; empty for no results."""
    window: WindowDim
    """The local window: what of the padding is left once elements outside the array are filled in."""

    @property
    def left(self) -> int:
        """The most that any piece needs from before its tile: what all hold room for."""
        return max([0, *(p * self.tile - low for p, (low, high) in enumerate(self.runs) if low < high)])

    @property
    def right(self) -> int:
        """Likewise from behind it."""
        return max([0, *(high - (p + 1) * self.tile for p, (low, high) in enumerate(self.runs) if low < high)])

    @property
    def received(self) -> float:
        """Elements a device receives, mean over the pieces."""
        total = sum(size * len(wanting) for side in (-1, 1) for _, size, wanting in self.strips(side))
        return total / len(self.starts)

    def strips(self, side: int) -> list[tuple[int, int, frozenset[int]]]:
        """(distance, elements, pieces that need some of them) of the strips from one side, nearest first.

        >>> halo_plan(WindowDim(size=3, padding_low=1, padding_high=1), 16, 16, 4).strips(-1)
        [(1, 1, frozenset({1, 2, 3}))]
        """
        found, amount, distance = [], self.left if side < 0 else self.right, 1
        while amount > 0:
            size = min(amount, self.tile)
            wanting = frozenset(p for p in range(len(self.runs)) if self._reads(p, p + side * distance, side, size))
            found.append((distance, size, wanting))
            amount, distance = amount - size, distance + 1
        return found

    def _reads(self, piece: int, other: int, side: int, size: int) -> bool:
        """Does a piece need any of the `size` elements at the near edge of another tile?"""
        if not 0 <= other < len(self.runs):
            return False
        start = (other + 1) * self.tile - size if side < 0 else other * self.tile
        low, high = self.runs[piece]
        return max(low, start) < min(high, start + size)


@lru_cache(maxsize=1 << 12)
def halo_plan(window: WindowDim, size: int, result: int, ways: int) -> HaloPlan | None:
    """The plan for a dim of `size` elements split `ways`, and a result of `result` elements split alike.

    None where the pieces differ in more than their place (dilation out of step with the tiles), or where a piece would
    need most of the array: then the dim is better whole.  `window` is as `rules.window_of` describes it.

    >>> plan = halo_plan(WindowDim(size=3, padding_low=1, padding_high=1), 16, 16, 4)
    >>> plan.left, plan.right, plan.count, plan.starts
    (1, 1, 6, (-1, 3, 7, 11))
    """
    out = -(-result // ways)
    outs = tuple(max(0, min(out, result - p * out)) for p in range(ways))  # the last results may be padding
    return _plan(window, size, ways, out * window.stride, outs, window.size)


@lru_cache(maxsize=1 << 12)
def taps_plan(window: WindowDim, size: int, result: int, ways: int) -> HaloPlan | None:
    """As `halo_plan`, for a split of the window itself: piece p holds its taps and adds up a part of every result.

    The taps must split evenly: padding taps would turn an infinity in the operand into a NaN.
    """
    if window.size % ways:
        return None
    taps = window.size // ways
    return _plan(window, size, ways, taps * window.window_dilation, (result,) * ways, taps)


def _plan(window: WindowDim, size: int, ways: int, step: int, outs: tuple[int, ...], taps: int) -> HaloPlan | None:
    """Piece p sees `taps` places of each of `outs[p]` results, from place p * step - padding_low on."""
    base = window.base_dilation
    if window.window_reversal or step % base:
        return None
    skip = window.padding_low % base  # places before the first element a piece sees
    spans = [(out - 1) * window.stride + (taps - 1) * window.window_dilation + 1 if out else 0 for out in outs]
    counts = [(span - skip - 1) // base + 1 if span > skip else 0 for span in spans]
    count, tile = max(counts), -(-size // ways)
    if count == 0:
        return None
    starts = tuple((p * step - window.padding_low + skip) // base for p in range(ways))
    rest = max(spans) - skip - (count - 1) * base - 1
    local = WindowDim(taps, window.stride, skip, rest, window.window_dilation, base)
    plan = HaloPlan(tile, starts, count, _runs(starts, counts, size), local)
    if not _is_near(plan):
        return None
    # A piece without results takes what it has: any run will do.
    idle = (p * tile - plan.left for p in range(ways))
    return replace(plan, starts=tuple(s if n else i for s, n, i in zip(starts, counts, idle, strict=True)))


def _runs(starts: Sequence[int], counts: Sequence[int], size: int) -> tuple[tuple[int, int], ...]:
    return tuple((max(s, 0), min(s + n, size)) for s, n in zip(starts, counts, strict=True))


def _is_near(plan: HaloPlan) -> bool:
    """Do pieces need less than the rest of the array?"""
    return plan.left + plan.right <= plan.tile * (len(plan.starts) - 1)


@lru_cache(maxsize=1 << 12)
def selection_plans(window: WindowDim, size: int, windows: int, ways: int) -> tuple[HaloPlan, HaloPlan, int] | None:
    """For select-and-scatter: runs of the operand and of the source, and where in the first the own tile begins.

    A piece takes all windows that touch its tile, each with all its elements; what it scatters beyond its tile is cut.
    """
    tile, stride = -(-size // ways), window.stride
    if window.window_reversal or window.window_dilation != 1 or window.base_dilation != 1 or tile % stride:
        return None
    first = (window.padding_low - window.size) // stride + 1  # first window that reaches element 0
    last = (tile - 1 + window.padding_low) // stride  # last window that reaches element tile - 1
    count = last - first + 1
    source_tile = -(-windows // ways)
    source_starts = tuple(p * (tile // stride) + first for p in range(ways))
    begin = first * stride - window.padding_low
    # Windows smaller than their stride leave elements that none of them sees: the own tile is kept whole.
    span = max((count - 1) * stride + window.size, tile - begin)
    starts = tuple(p * tile + begin for p in range(ways))
    local = WindowDim(window.size, stride)
    operand = HaloPlan(tile, starts, span, _runs(starts, (span,) * ways, size), local)
    source = HaloPlan(source_tile, source_starts, count, _runs(source_starts, (count,) * ways, windows), local)
    return (operand, source, -begin) if _is_near(operand) and _is_near(source) else None


def fetch(
    emitter: Emitter, x: Instruction, shape: Shape, sharding: HloSharding, dim: int, plan: HaloPlan, fill: Any
) -> Instruction:
    """`x` with `dim` replaced by the plan's run of elements; places outside the array hold `fill` (a scalar)."""
    emitter.reason = "halo"
    places = [index[dim] for index in tile_table(sharding, shape.rank, emitter.num_partitions)]
    before = _received(emitter, x, sharding, dim, plan, -1)
    behind = _received(emitter, x, sharding, dim, plan, 1)
    joined = emitter.concatenate([*reversed(before), x, *behind], dim)
    # Offset of each device's run in what it now holds; runs that begin or end outside are padded for.
    offsets = [plan.starts[p] - p * plan.tile + plan.left for p in places]
    low = max(0, -min(offsets))
    high = max(0, max(offsets) + plan.count - joined.shape.dims[dim])
    padding = [[amount if d == dim else 0 for d in range(shape.rank)] for amount in (low, high)]
    joined = emitter.pad(joined, padding[0], padding[1], fill)
    run = _cut(emitter, joined, dim, [o + low for o in offsets], plan.count)
    starts = tuple(plan.starts[p] for p in places)
    return _filled(emitter, run, dim, starts, shape.dims[dim], fill)


def _received(
    emitter: Emitter, x: Instruction, sharding: HloSharding, dim: int, plan: HaloPlan, side: int
) -> list[Instruction]:
    """The strips from one side, nearest first; only pieces that need one receive it."""
    found = []
    for distance, size, wanting in plan.strips(side):
        starts, limits = [0] * x.shape.rank, list(x.shape.dims)
        starts[dim], limits[dim] = (plan.tile - size, plan.tile) if side < 0 else (0, size)
        strip = emitter.slice(x, starts, limits)
        # Where nobody reads a strip its place is kept by whatever is at hand.
        pairs = _neighbours(sharding, dim, side * distance, wanting)
        found.append(emitter.collective_permute(strip, pairs) if pairs else strip)
    return found


@lru_cache(maxsize=1 << 12)
def _neighbours(sharding: HloSharding, dim: int, distance: int, wanting: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """(source, target) where the source's tile lies `distance` tiles further along `dim`, for the pieces `wanting`."""
    tiles = np.moveaxis(sharding.tiles.array, dim, 0)
    pairs: list[tuple[int, int]] = []
    for piece in sorted(wanting):
        if 0 <= piece + distance < len(tiles):
            sources, targets = tiles[piece + distance].reshape(-1), tiles[piece].reshape(-1)
            pairs += zip(map(int, sources), map(int, targets), strict=True)
    return tuple(pairs)


def _cut(emitter: Emitter, x: Instruction, dim: int, offsets: list[int], count: int) -> Instruction:
    sizes = tuple(count if d == dim else s for d, s in enumerate(x.shape.dims))
    if len(set(offsets)) == 1:
        starts = [offsets[0] if d == dim else 0 for d in range(x.shape.rank)]
        return emitter.slice(x, starts, [s + n for s, n in zip(starts, sizes, strict=True)])
    zero = emitter.per_device((0,) * emitter.num_partitions)
    places = [emitter.per_device(offsets) if d == dim else zero for d in range(x.shape.rank)]
    return emitter.dynamic_slice(x, places, sizes)


def _filled(emitter: Emitter, run: Instruction, dim: int, starts: tuple[int, ...], size: int, fill: Any) -> Instruction:
    count = run.shape.dims[dim]
    value = emitter.full(fill, run.shape)
    if any(s + count > size for s in starts):
        run = emitter.select(inside(emitter, run.shape, dim, starts, size), run, value)
    if any(s < 0 for s in starts):
        before = inside(emitter, run.shape, dim, starts, 0)
        run = emitter.select(before, value, run)
    return run
