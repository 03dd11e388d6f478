"""What pieces of a windowed dim need of the operand, and which local window computes them.

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
from hlosharding.partitioner.factors.halo import HaloPlan


class _Part(NamedTuple):
    """What one piece computes."""

    first: int
    """Place of its window's first tap for its first result, before padding."""
    results: int
    taps: tuple[int, int]
    """The first of the local window's taps that counts, and one past the last."""


@lru_cache(maxsize=1 << 12)
def halo_plan(window: WindowDim, size: int, result: int, ways: int) -> HaloPlan | None:
    """The plan for a dim of `size` elements split `ways`, and a result of `result` elements split alike.

    None where no local window does it: of a reversed one, or where all is padding.  `window` is as `rules.window_of`
    describes it.

    >>> plan = halo_plan(WindowDim(size=3, padding_low=1, padding_high=1), 16, 16, 4)
    >>> plan.left, plan.right, plan.count, plan.starts
    (1, 1, 6, (-1, 3, 7, 11))
    """
    if window.window_reversal:
        return None
    out = -(-result // ways)
    whole = (0, window.size)
    # The last results may be padding.
    parts = [_Part(p * out * window.stride, max(0, min(out, result - p * out)), whole) for p in range(ways)]
    return _plan(window, size, out, parts)


@lru_cache(maxsize=1 << 12)
def taps_plan(window: WindowDim, size: int, result: int, ways: int) -> HaloPlan | None:
    """As `halo_plan`, for a split of the window itself: piece p holds its taps and adds up a part of every result.

    Of a reversed window piece p holds the p-th tile from the end.  Where taps do not split evenly, the last tiles hold
    fewer real ones (`real_taps`).  None where strides never bring the pieces into step with a dilation.

    >>> plan = taps_plan(WindowDim(size=8, padding_low=1, padding_high=1), 8, 3, 4)
    >>> plan.starts, plan.count, plan.window.size
    ((-1, 1, 3, 5), 4, 2)
    """
    taps, real = -(-window.size // ways), real_taps(window.size, ways)
    parts: list[_Part] = []
    for piece in range(ways):
        tile = ways - 1 - piece if window.window_reversal else piece
        count = real[tile]
        # Reversed, the first element of the kernel meets the last place.
        first, skipped = (window.size - (tile + 1) * taps, taps - count) if window.window_reversal else (tile * taps, 0)
        place = first * window.window_dilation
        parts.append(_Part(place, result if count else 0, (skipped, skipped + count)))
    return _plan(replace(window, size=taps, window_reversal=False), size, result, parts)


def real_taps(size: int, ways: int) -> tuple[int, ...]:
    """How many elements of a dim lie in each of its tiles.

    >>> real_taps(6, 4)
    (2, 2, 2, 0)
    """
    tile = -(-size // ways)
    return tuple(max(0, min(tile, size - t * tile)) for t in range(ways))


def _plan(window: WindowDim, size: int, out: int, parts: Sequence[_Part]) -> HaloPlan | None:
    """All pieces compute `out` results with the taps of `window`; `parts` says which of them count."""
    base, dilation = window.base_dilation, window.window_dilation
    firsts = [part.first - window.padding_low for part in parts]
    in_step = _in_step(firsts, window.stride, base)
    if in_step is None:
        return None
    phase, lags = in_step
    skip = -phase % base  # places before the first element a piece sees
    span = (out + max(lags) - 1) * window.stride + (window.size - 1) * dilation + 1
    if span <= skip or not any(part.results for part in parts):
        return None
    count = (span - skip - 1) // base + 1
    starts = tuple((f - lag * window.stride + skip) // base for f, lag in zip(firsts, lags, strict=True))
    runs: list[tuple[int, int]] = []
    for first, (_, results, (low, high)) in zip(firsts, parts, strict=True):
        last = first + (results - 1) * window.stride + (high - 1) * dilation
        runs.append(_clipped(-(-(first + low * dilation) // base), last // base + 1, size) if results else (0, 0))
    local = WindowDim(window.size, window.stride, skip, span - skip - (count - 1) * base - 1, dilation, base)
    plan = HaloPlan(-(-size // len(parts)), starts, count, tuple(runs), local, tuple(lags))
    # A piece without results takes what it has: any run will do.
    idle = (p * plan.tile - plan.left for p in range(len(parts)))
    return replace(plan, starts=tuple(s if p.results else i for s, p, i in zip(starts, parts, idle, strict=True)))


def _in_step(firsts: Sequence[int], stride: int, base: int) -> tuple[int, list[int]] | None:
    """(phase, lags): each piece begins so many results early that all see the dilated operand in one phase.

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


def _clipped(low: int, high: int, size: int) -> tuple[int, int]:
    return max(low, 0), min(high, size)


@lru_cache(maxsize=1 << 12)
def selection_plans(
    window: WindowDim, size: int, windows: int, ways: int
) -> tuple[HaloPlan, HaloPlan, tuple[int, ...]] | None:
    """For select-and-scatter: runs of the operand and of the source, and where in the first each own tile begins.

    A piece takes all windows that touch its tile, each with all its elements; what it scatters beyond its tile is cut.
    """
    if window.window_reversal or window.window_dilation != 1 or window.base_dilation != 1:
        return None
    tile, stride, low = -(-size // ways), window.stride, window.padding_low
    touching: list[tuple[int, int]] = []  # of each piece the first window, and one past the last
    for own in range(0, ways * tile, tile):
        # Windows smaller than their stride leave elements that none of them sees: the own tile is kept whole.
        first = min(-(-(own + low - window.size + 1) // stride), (own + low) // stride)
        touching.append((first, (own + tile - 1 + low) // stride + 1))
    count = max(end - first for first, end in touching)
    starts = [first * stride - low for first, _ in touching]
    begins = tuple(p * tile - start for p, start in enumerate(starts))
    span = max((count - 1) * stride + window.size, tile + max(begins))
    ends = [(end - 1) * stride - low + window.size for _, end in touching]
    needed = tuple(_clipped(s, e, size) for s, e in zip(starts, ends, strict=True))
    local = WindowDim(window.size, stride)
    operand = HaloPlan(tile, tuple(starts), span, needed, local)
    firsts, sources = tuple(first for first, _ in touching), tuple(_clipped(*t, windows) for t in touching)
    return operand, HaloPlan(-(-windows // ways), firsts, count, sources, local), begins
