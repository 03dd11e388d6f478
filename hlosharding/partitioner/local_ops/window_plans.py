"""What each tile of a windowed dim needs of the operand, which local window computes it, and the halo exchange: it
gives each device the elements along one dim that its window needs, beyond its own tile too.

Floor: partitioner.  Strips travel between neighbours by collective permutes, one per direction and distance, no more
than is needed; what lies outside the array is filled.  Works for uneven tiles, for several hops and for negative
padding.

    tiles                  0 1 2 3|4 5 6 7|8 9 ...
    device 1 receives            3          8         one strip from the left, one from the right
    joins                       [3 4 5 6 7 8]
    and cuts out `count` elements from its own start on

Plans are arithmetic on places: they know no instructions and no devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from hlosharding.ir import Instruction, WindowDim
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Emitter, inside


class Strip(NamedTuple):
    """Elements at the edge of a tile that another tile's device may need."""

    distance: int
    """How many tiles further the device is that needs them."""
    size: int
    readers: frozenset[int]
    """Tiles whose devices need some of them."""


@dataclass(frozen=True, slots=True)
class HaloPlan:
    """What one windowed dim needs: the device of tile t computes its results from `count` elements at `starts[t]`."""

    tile: int
    """Elements of the operand a device holds."""
    starts: tuple[int, ...]
    """Per tile the first element of the operand that is taken; may lie before the array."""
    count: int
    needed: tuple[tuple[int, int], ...]
    """Per tile the first element inside the array that is needed, and one past the last; equal for no results."""
    window: WindowDim
    """The local window: what of the padding is left once elements outside the array are filled in."""
    lags: tuple[int, ...] = ()
    """Per tile how many results too early it begins; they are to be cut off."""

    @property
    def left(self) -> int:
        """The most elements that anyone needs from before its tile: what all have room for."""
        return max([0, *(t * self.tile - low for t, (low, high) in enumerate(self.needed) if low < high)])

    @property
    def right(self) -> int:
        """Likewise from behind it."""
        return max([0, *(high - (t + 1) * self.tile for t, (low, high) in enumerate(self.needed) if low < high)])

    @property
    def is_far(self) -> bool:
        """Is so much needed that the dim is better whole?"""
        # As much as this a device receives where the dim is made whole.
        return self.left + self.right > self.tile * (len(self.starts) - 1)

    @property
    def received(self) -> float:
        """Elements a device receives, mean over the tiles."""
        total = sum(strip.size * len(strip.readers) for side in (-1, 1) for strip in self.strips(side))
        return total / len(self.starts)

    @property
    def messages(self) -> int:
        """Strips that anyone receives."""
        return sum(bool(strip.readers) for side in (-1, 1) for strip in self.strips(side))

    def strips(self, side: int) -> list[Strip]:
        """The strips from one side (-1: from tiles before), nearest first.

        >>> HaloPlan(2, (0, 1, 3), 3, ((0, 2), (1, 4), (3, 6)), WindowDim(3)).strips(-1)
        [Strip(distance=1, size=1, readers=frozenset({1, 2}))]
        """
        amount, tiles = self.left if side < 0 else self.right, range(len(self.needed))
        # A dim of no elements has tiles of none, and no step.
        sizes = [min(self.tile, amount - start) for start in range(0, amount, self.tile or 1)]
        return [
            Strip(distance, size, frozenset(t for t in tiles if self._reads(t, t + side * distance, side, size)))
            for distance, size in enumerate(sizes, 1)
        ]

    def _reads(self, tile: int, other: int, side: int, size: int) -> bool:
        """Does a tile need any of the `size` elements at the near edge of another one?"""
        if not 0 <= other < len(self.needed):
            return False
        start = (other + 1) * self.tile - size if side < 0 else other * self.tile
        low, high = self.needed[tile]
        return max(low, start) < min(high, start + size)


@dataclass(frozen=True, slots=True)
class FactorTiles:
    """Which tile of a split factor each device computes, and which device computes the next one."""

    space: HloSharding
    """The split of all factors of the op."""
    factor: int
    numbers: tuple[int, ...]
    """Per device."""


@lru_cache(maxsize=1 << 12)
def _pairs(space: HloSharding, factor: int, distance: int, readers: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """(source, target) where the source's tile lies `distance` further, for the tiles `readers`.

    All other factors are the same: a device may hold only its part of what others hold whole.
    """
    tiles = np.moveaxis(space.tiles.array, factor, 0)
    return tuple(
        (int(source), int(target))
        for tile in sorted(readers)
        if 0 <= tile + distance < len(tiles)
        for source, target in zip(tiles[tile + distance].reshape(-1), tiles[tile].reshape(-1), strict=True)
    )


@dataclass(frozen=True, slots=True)
class HaloExchange:
    """One exchange along one dim of an operand."""

    dim: int
    size: int
    """Of the dim, of the whole array."""
    is_split: bool
    """Is the operand split along the dim?  If it is whole nothing is sent."""
    plan: HaloPlan
    tiles: FactorTiles
    fill: Any
    """What places outside the array hold."""


def exchange_halo(emitter: Emitter, x: Instruction, halo: HaloExchange) -> Instruction:
    """`x` with the dim replaced by the elements that each device's window needs."""
    dim, plan, tiles = halo.dim, halo.plan, halo.tiles.numbers
    starts = tuple(plan.starts[t] for t in tiles)
    if halo.is_split:
        with emitter.because("halo"):
            before, behind = (_received(emitter, x, halo, side) for side in (-1, 1))
        joined = emitter.concatenate([*reversed(before), x, *behind], dim)
        offsets = [start - t * plan.tile + plan.left for start, t in zip(starts, tiles, strict=True)]
    else:
        joined, offsets = x, list(starts)
    # Offsets count in what a device holds; what begins or ends outside of that is padded for.
    low = max(0, -min(offsets))
    high = max(0, max(offsets) + plan.count - joined.shape.dims[dim])
    padding = [[amount if d == dim else 0 for d in range(x.shape.rank)] for amount in (low, high)]
    joined = emitter.pad(joined, padding[0], padding[1], halo.fill)
    needed = cut_out(emitter, joined, dim, [o + low for o in offsets], plan.count)
    return _filled(emitter, needed, halo, starts)


def _received(emitter: Emitter, x: Instruction, halo: HaloExchange, side: int) -> list[Instruction]:
    """The strips from one side, nearest first; only devices that need one receive it."""
    found: list[Instruction] = []
    dim, tile = halo.dim, halo.plan.tile
    for distance, size, readers in halo.plan.strips(side):
        strip = emitter.slice_along(x, dim, *((tile - size, tile) if side < 0 else (0, size)))
        # Where nobody reads a strip, the device's own elements keep its place.
        pairs = _pairs(halo.tiles.space, halo.tiles.factor, side * distance, readers)
        found.append(emitter.collective_permute(strip, pairs) if pairs else strip)
    return found


def cut_out(emitter: Emitter, x: Instruction, dim: int, offsets: list[int], count: int) -> Instruction:
    """`count` elements along `dim` from each device's own offset on."""
    if len(set(offsets)) == 1:
        return emitter.slice_along(x, dim, offsets[0], offsets[0] + count)
    begin = emitter.per_device(offsets)
    zero = emitter.constant(begin.shape.dtype.type(0))
    places = [begin if d == dim else zero for d in range(x.shape.rank)]
    return emitter.dynamic_slice(x, places, x.shape.with_dim(dim, count).dims)


def _filled(emitter: Emitter, x: Instruction, halo: HaloExchange, starts: tuple[int, ...]) -> Instruction:
    """`x`, which begins at place `starts[device]`, with `fill` where a place lies outside the array."""
    dim, count = halo.dim, x.shape.dims[halo.dim]
    value = emitter.full(halo.fill, x.shape)
    if any(s + count > halo.size for s in starts):
        x = emitter.select(inside(emitter, x.shape, dim, starts, halo.size), x, value)
    if any(s < 0 for s in starts):
        before = inside(emitter, x.shape, dim, starts, 0)
        x = emitter.select(before, value, x)
    return x


@lru_cache(maxsize=1 << 12)
def split_result_plan(window: WindowDim, size: int, result_size: int, num_tiles: int) -> HaloPlan | None:
    """The plan for a dim of `size` elements split into tiles, and a result of `result_size` elements split alike.

    None where no local window does it: of a reversed one, or where all is padding.  `window` is as `rules.window_of`
    describes it.

        elements      _ 0 1 2 3|4 5 6 7|...       a window of three, padded by one on each side
        results         0 1 2 3|4 5 6 7|...
        tile 0 needs  [_ 0 1 2 3 4]               from place -1 on six elements; of its right neighbour one
        tile 1 needs          [3 4 5 6 7 8]       from place 3 on; of each neighbour one

    >>> plan = split_result_plan(WindowDim(size=3, padding_low=1, padding_high=1), 16, 16, 4)
    >>> plan.left, plan.right, plan.count, plan.starts
    (1, 1, 6, (-1, 3, 7, 11))
    """
    if window.window_reversal:
        return None
    tile = -(-result_size // num_tiles)
    whole = (0, window.size)
    # The last results may be padding.
    counts = (max(0, min(tile, result_size - t * tile)) for t in range(num_tiles))
    parts = [_Part(t * tile * window.stride, count, whole) for t, count in enumerate(counts)]
    return _plan(window, size, tile, parts)


@lru_cache(maxsize=1 << 12)
def split_window_plan(window: WindowDim, size: int, result_size: int, num_tiles: int) -> HaloPlan | None:
    """As `split_result_plan`, for a split of the window itself: every tile adds a part to all results.

    Of a reversed window tile t meets the t-th tile of elements from the end.  Where taps do not split evenly, the last
    tiles hold fewer real ones (`real_taps`).  None where strides never bring the tiles into step with a dilation.

        taps       0 1|2 3|4 5|6 7          eight taps over eight elements, padded by one: results 0, 1, 2
        elements   _ 0 1 2 3 4 5 6 7 _
        tile 0    [_ 0 1 2]                 its taps 0 and 1, of all three results
        tile 1        [1 2 3 4]             its taps 2 and 3

    >>> plan = split_window_plan(WindowDim(size=8, padding_low=1, padding_high=1), 8, 3, 4)
    >>> plan.starts, plan.count, plan.window.size
    ((-1, 1, 3, 5), 4, 2)
    """
    taps = -(-window.size // num_tiles)
    parts = [_taps_part(window, result_size, num_tiles, tile) for tile in range(num_tiles)]
    return _plan(replace(window, size=taps, window_reversal=False), size, result_size, parts)


def no_plan(window: WindowDim, size: int, result_size: int, num_tiles: int) -> HaloPlan | None:
    """Of windows that are never split."""
    return None


def real_taps(size: int, num_tiles: int) -> tuple[int, ...]:
    """How many elements of a dim lie in each of its tiles.

    >>> real_taps(6, 4)
    (2, 2, 2, 0)
    """
    tile = -(-size // num_tiles)
    return tuple(max(0, min(tile, size - t * tile)) for t in range(num_tiles))


class _Part(NamedTuple):
    """What one device computes of a windowed op."""

    first: int
    """Place of its window's first tap for its first result, before padding."""
    results: int
    taps: tuple[int, int]
    """The first of the local window's taps that counts, and one past the last."""


def _taps_part(window: WindowDim, results: int, num_tiles: int, tile: int) -> _Part:
    """What a device computes that has one tile of the window."""
    taps, reverse = -(-window.size // num_tiles), window.window_reversal
    number = num_tiles - 1 - tile if reverse else tile
    count = real_taps(window.size, num_tiles)[number]
    # Reversed, the first element of the kernel meets the last place.
    first, skipped = (window.size - (number + 1) * taps, taps - count) if reverse else (number * taps, 0)
    return _Part(first * window.window_dilation, results if count else 0, (skipped, skipped + count))


def _plan(window: WindowDim, size: int, results: int, parts: Sequence[_Part]) -> HaloPlan | None:
    """Each device computes so many results with the taps of `window`; `parts` says which of them count.

    Places are those of the operand with its base dilation, every `base_dilation`-th of which has an element.  A device
    sees `span` places, of which the first `skip` have none before its first element.
    """
    base = window.base_dilation
    firsts = [part.first - window.padding_low for part in parts]
    in_step = _in_step(firsts, window.stride, base)
    if in_step is None:
        return None
    phase, lags = in_step
    skip = -phase % base
    span = (results + max(lags) - 1) * window.stride + (window.size - 1) * window.window_dilation + 1
    if span <= skip or not any(part.results for part in parts):
        return None
    count = (span - skip - 1) // base + 1
    local = replace(window, padding_low=skip, padding_high=span - skip - (count - 1) * base - 1)
    starts = [(f - lag * window.stride + skip) // base for f, lag in zip(firsts, lags, strict=True)]
    needed = [_needed(window, size, *pair) for pair in zip(firsts, parts, strict=True)]
    plan = HaloPlan(-(-size // len(parts)), tuple(starts), count, tuple(needed), local, tuple(lags))
    # A device without results takes what it has: any elements will do.
    idle = (t * plan.tile - plan.left for t in range(len(parts)))
    return replace(plan, starts=tuple(s if p.results else i for s, p, i in zip(starts, parts, idle, strict=True)))


def _needed(window: WindowDim, size: int, first: int, part: _Part) -> tuple[int, int]:
    """The first element inside the array that a device's results need, and one past the last."""
    if not part.results:
        return 0, 0
    low, high = part.taps
    start = first + low * window.window_dilation
    last = first + (part.results - 1) * window.stride + (high - 1) * window.window_dilation
    return _clipped(-(-start // window.base_dilation), last // window.base_dilation + 1, size)


def _in_step(firsts: Sequence[int], stride: int, base: int) -> tuple[int, list[int]] | None:
    """(phase, lags): each tile begins so many results early that all see the dilated operand in one phase.

    None where they never do: taps whose distance the stride cannot make up for.

    >>> _in_step([0, 7, 14], 1, 2), _in_step([0, 7], 2, 2)
    ((0, [0, 1, 0]), None)
    """
    # Strides back reach each `step`-th phase, all of them within `base // step` results.
    step = gcd(stride, base)
    if len({first % step for first in firsts}) > 1:
        return None
    found: list[tuple[int, int, list[int]]] = []
    for phase in range(firsts[0] % step, base, step):
        lags = [next(j for j in range(base // step) if (f - j * stride - phase) % base == 0) for f in firsts]
        found.append((max(lags), phase, lags))
    # All devices compute as many results too many as the one that begins earliest: the fewest.
    _, phase, lags = min(found)
    return phase, lags


# ---- select-and-scatter


class SelectionPlan(NamedTuple):
    """What the devices of a select-and-scatter need."""

    operand: HaloPlan
    source: HaloPlan
    begins: tuple[int, ...]
    """Per tile where it begins in what its device has of the operand."""


def selection_operand_plan(window: WindowDim, size: int, windows: int, num_tiles: int) -> HaloPlan | None:
    """What the tiles of a select-and-scatter need of the operand they select from."""
    plan = selection_plan(window, size, windows, num_tiles)
    return plan and plan.operand


def selection_source_plan(window: WindowDim, size: int, windows: int, num_tiles: int) -> HaloPlan | None:
    """What the tiles of a select-and-scatter need of the values they scatter, one per window."""
    plan = selection_plan(window, size, windows, num_tiles)
    return plan and plan.source


@lru_cache(maxsize=1 << 12)
def selection_plan(window: WindowDim, size: int, windows: int, num_tiles: int) -> SelectionPlan | None:
    """What a select-and-scatter needs, of an operand of `size` elements and a source of one value per window.

    A device takes all windows that touch its tile, each with all its elements; what it scatters beyond its tile is cut
    off.

        elements       0 1 2|3 4 5|...        windows of two side by side, tiles of three
        windows        [0 ] [1 ] [2 ]         window 1 touches both tiles: both compute it
        tile 1 takes      [2 3 4 5]           and its own elements begin at place 1 of these
    """
    if window.window_reversal or window.window_dilation != 1 or window.base_dilation != 1:
        return None
    tile, stride, low = -(-size // num_tiles), window.stride, window.padding_low
    touching = [_touching(window, t * tile, tile) for t in range(num_tiles)]
    count = max(end - first for first, end in touching)
    starts = [first * stride - low for first, _ in touching]
    begins = tuple(t * tile - start for t, start in enumerate(starts))
    span = max((count - 1) * stride + window.size, tile + max(begins))
    ends = [(end - 1) * stride - low + window.size for _, end in touching]
    needed = tuple(_clipped(s, e, size) for s, e in zip(starts, ends, strict=True))
    local = WindowDim(window.size, stride)
    firsts, sources = tuple(first for first, _ in touching), tuple(_clipped(*t, windows) for t in touching)
    return SelectionPlan(
        HaloPlan(tile, tuple(starts), span, needed, local),
        HaloPlan(-(-windows // num_tiles), firsts, count, sources, local),
        begins,
    )


def _touching(window: WindowDim, own: int, tile: int) -> tuple[int, int]:
    """The first window that touches the tile from element `own` on, and one past the last.

    Windows smaller than their stride leave elements that none of them sees: the own tile is kept whole.
    """
    stride, low = window.stride, window.padding_low
    first = min(-(-(own + low - window.size + 1) // stride), (own + low) // stride)
    return first, (own + tile - 1 + low) // stride + 1


def _clipped(low: int, high: int, size: int) -> tuple[int, int]:
    return max(low, 0), min(high, size)
