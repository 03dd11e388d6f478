"""Ways in the source's own device order, and one permute to the target's, wherever that is cheapest.

Floor: reshard.  For plans where time decides.

Whatever the two device orders are, the tile counts alone say which device axes must go where; in the source's order
those moves have a grid.  A permute of all tiles then makes up for the order: before, between or behind the moves, which
from then on are those of other devices.  Uneven tiles are cut as they are, padded each at its end, and a little travels
between neighbours in the end.  XLA's all-to-alls, halo exchanges and permutes in a row are of this kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hlosharding.reshard.axis_plan import paired
from hlosharding.reshard.for_time.tile_edges import moved_edges
from hlosharding.reshard.layout import Dims, Layout, Table, layout_of
from hlosharding.reshard.steps import Permute, Step
from hlosharding.sharding import HloSharding

if TYPE_CHECKING:
    from hlosharding.reshard.planner import Request

Steps = tuple[Step, ...]


def exchange_and_reorder(request: Request) -> Iterator[Steps]:
    """The target's tiles are made in the source's order; the permute may stand anywhere among the steps."""
    first, last, (source, target) = request.source, request.target, request.layouts()
    if not (first.kind == last.kind == "tiled" and source.is_plain and target.is_plain):
        return
    counts = (*source.counts, source.copies), (*target.counts, target.copies)
    way = HloSharding.partial_tile(_in_own_order(first, *counts))
    made = layout_of(way, request.shape.dims, request.num_devices)
    taken_from, devices = paired(made.numbers, target.numbers), np.arange(request.num_devices)
    names = np.empty_like(devices)
    names[taken_from] = devices
    pairs = tuple(zip(taken_from.tolist(), devices.tolist(), strict=True))
    permute = (Permute(pairs),) if any(a != b for a, b in pairs) else ()
    nested = _as_it_is_cut(source, made)
    ways = [] if not permute else list(request.ways(first, way))
    if nested is not None:
        for steps in request.exchanges(
            first, way, tuple(t * n for t, n in zip(nested.tile, nested.counts, strict=True))
        ):
            yield from ((*steps, end) for end in request.direct(nested, target))
            ways += [(*steps, *ends) for ends in moved_edges(request, nested, made)]
    for steps in ways:
        for at in range(len(steps), -1, -1) if permute else (0,):
            yield (*steps[:at], *permute, *(step.renamed(names) for step in steps[at:]))


def _as_it_is_cut(source: Layout, made: Layout) -> Layout | None:
    """Where the parts of the source's tiles lie, if not where tiles of `made` should."""
    stays = tuple(np.gcd(source.counts, made.counts).tolist())
    columns = zip(stays, source.counts, source.tile, source.dims, strict=True)
    nested = made.nested(stays, tuple(size if n == 1 else s // n * tile for n, s, tile, size in columns))
    is_same = all(np.array_equal(a, b) for a, b in zip(nested.bounds(), made.bounds(), strict=True))
    return None if is_same else nested


def _in_own_order(first: HloSharding, have: Dims, want: Dims) -> Table:
    """The source's devices as an array of the target's counts: of each dim what can stay stays, as its major part."""
    stays = np.gcd(have, want).tolist()
    sizes: list[int] = []
    free: list[tuple[int, int]] = []
    order: list[list[int]] = []
    for a, c in zip(have, stays, strict=True):
        order.append([len(sizes)])
        sizes.append(c)
        for prime in _primes(a // c):
            free.append((prime, len(sizes)))
            sizes.append(prime)
    # Copies first: they are cut, which makes smaller what else must move.
    free.sort(key=lambda one: one[1] < order[-1][0])
    for mine, b, c in zip(order, want, stays, strict=True):
        for prime in _primes(b // c):
            found = next(one for one in free if one[0] == prime)
            free.remove(found)
            mine.append(found[1])
    return first.tiles.array.reshape(sizes).transpose([a for mine in order for a in mine]).reshape(want)


def _primes(number: int) -> Iterator[int]:
    prime = 2
    while number > 1:
        while number % prime == 0:
            yield prime
            number //= prime
        prime += 1
