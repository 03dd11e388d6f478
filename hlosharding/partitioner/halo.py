"""Halo exchange: give each device a run of elements along one dim that starts and ends beyond its own tile.

Floor: partitioner.  Strips travel between neighbours by permutes, one per direction and distance, no more than is
needed; what lies outside the array is filled.  Works for uneven tiles, for several hops and for negative padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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
    """First element of the operand each piece needs; may lie before the array."""
    count: int
    left: int
    """Most elements any piece needs from before its own tile, and from behind it."""
    right: int
    window: WindowDim
    """The local window: what of the padding is left once elements outside the array are filled in."""

    @property
    def strips(self) -> int:
        """Elements a device may receive."""
        return self.left + self.right


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
    return _plan(window, size, ways, out * window.stride, out, window.size)


@lru_cache(maxsize=1 << 12)
def taps_plan(window: WindowDim, size: int, result: int, ways: int) -> HaloPlan | None:
    """As `halo_plan`, for a split of the window itself: piece p holds its taps and adds up a part of every result.

    The taps must split evenly: padding taps would turn an infinity in the operand into a NaN.
    """
    if window.size % ways:
        return None
    taps = window.size // ways
    return _plan(window, size, ways, taps * window.window_dilation, result, taps)


def _plan(window: WindowDim, size: int, ways: int, step: int, out: int, taps: int) -> HaloPlan | None:
    """Piece p sees `taps` places of each of `out` results, from place p * step - padding_low on."""
    base = window.base_dilation
    if window.window_reversal or step % base:
        return None
    span = (out - 1) * window.stride + (taps - 1) * window.window_dilation + 1
    skip = window.padding_low % base  # places before the first element a piece sees
    count = (span - skip - 1) // base + 1 if span > skip else 0
    if count <= 0:
        return None
    starts = tuple((p * step - window.padding_low + skip) // base for p in range(ways))
    tile = -(-size // ways)
    left, right = _reach(starts, count, tile, size)
    if max(-(-left // tile), -(-right // tile)) > ways - 1 or left + right > tile * (ways - 1):
        return None
    rest = span - skip - (count - 1) * base - 1
    return HaloPlan(
        tile, starts, count, left, right, WindowDim(taps, window.stride, skip, rest, window.window_dilation, base)
    )


def _reach(starts: tuple[int, ...], count: int, tile: int, size: int) -> tuple[int, int]:
    """Most elements that lie inside the array but before, and behind, a piece's own tile."""
    left = right = 0
    for p, start in enumerate(starts):
        low, high = max(start, 0), min(start + count, size)
        if low < high:
            left, right = max(left, p * tile - low), max(right, high - (p + 1) * tile)
    return left, right


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
    begin, span = first * stride - window.padding_low, (count - 1) * stride + window.size
    starts = tuple(p * tile + begin for p in range(ways))
    reach, source_reach = _reach(starts, span, tile, size), _reach(source_starts, count, source_tile, windows)
    if sum(reach) > tile * (ways - 1) or sum(source_reach) > source_tile * (ways - 1):
        return None
    local = WindowDim(window.size, stride)
    operand = HaloPlan(tile, starts, span, *reach, local)
    return operand, HaloPlan(source_tile, source_starts, count, *source_reach, local), -begin


def fetch(
    emitter: Emitter, x: Instruction, shape: Shape, sharding: HloSharding, dim: int, plan: HaloPlan, fill: Any
) -> Instruction:
    """`x` with `dim` replaced by the plan's run of elements; places outside the array hold `fill` (a scalar)."""
    emitter.reason = "halo"
    places = [index[dim] for index in tile_table(sharding, shape.rank, emitter.num_partitions)]
    before = _strips(emitter, x, sharding, dim, plan.left, -1)
    behind = _strips(emitter, x, sharding, dim, plan.right, 1)
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


def _strips(
    emitter: Emitter, x: Instruction, sharding: HloSharding, dim: int, amount: int, side: int
) -> list[Instruction]:
    """The nearest `amount` elements from one side, one strip per neighbour, nearest first."""
    strips, distance, tile = [], 1, x.shape.dims[dim]
    while amount > 0:
        size = min(amount, tile)
        starts = [0] * x.shape.rank
        limits = list(x.shape.dims)
        starts[dim], limits[dim] = (tile - size, tile) if side < 0 else (0, size)
        strip = emitter.slice(x, starts, limits)
        strips.append(emitter.collective_permute(strip, _neighbours(sharding, dim, side * distance)))
        amount, distance = amount - size, distance + 1
    return strips


@lru_cache(maxsize=1 << 12)
def _neighbours(sharding: HloSharding, dim: int, distance: int) -> tuple[tuple[int, int], ...]:
    """(source, target) where the source's tile lies `distance` tiles further along `dim`."""
    tiles = sharding.tiles.array
    ways = tiles.shape[dim]
    near = [slice(None)] * tiles.ndim
    far = list(near)
    near[dim] = slice(max(0, -distance), min(ways, ways - distance))
    far[dim] = slice(max(0, distance), min(ways, ways + distance))
    return tuple(zip(map(int, tiles[tuple(far)].reshape(-1)), map(int, tiles[tuple(near)].reshape(-1)), strict=True))


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
