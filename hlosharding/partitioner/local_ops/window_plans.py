"""What each tile of a windowed dim needs of the operand, and which local window computes it.

Floor: partitioner.  Arithmetic on places; knows no instructions and no devices.  `halo.py` fetches what is planned
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from hlosharding.ir import WindowDim
from hlosharding.partitioner.local_ops.halo import HaloPlan


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
    step = gcd(stride, base)
    if len({first % step for first in firsts}) > 1:
        return None
    found: list[tuple[int, int, list[int]]] = []
    for phase in range(firsts[0] % step, base, step):
        lags = [next(j for j in range(base // step) if (f - j * stride - phase) % base == 0) for f in firsts]
        found.append((max(lags), phase, lags))
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
    touching = [_touching(window, own, tile) for own in range(0, num_tiles * tile, tile)]
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
