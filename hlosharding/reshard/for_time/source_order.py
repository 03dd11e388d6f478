"""Plans in the source's own device order, and one permute to the target's, wherever that is cheapest.

Floor: reshard.  For plans where time decides.

Whatever the two device orders are, the tile counts alone say which device axes must go where; in the source's order
those moves have a grid.  A permute of all tiles then makes up for the order: before, between or behind the moves, which
from then on are those of other devices.  Uneven tiles are cut as they are, padded each at its end, and a little travels
between neighbours in the end.  XLA's all-to-alls, halo exchanges and permutes in a row are of this kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hlosharding.reshard.for_time.search import TimeSearch
from hlosharding.reshard.intermediates import keep_source_order
from hlosharding.reshard.layout import Layout, layout_of
from hlosharding.reshard.request import Steps
from hlosharding.reshard.steps import Permute
from hlosharding.reshard.subgroups import taken_from
from hlosharding.sharding import HloSharding


def exchange_and_reorder(search: TimeSearch) -> Iterator[Steps]:
    """The target's tiles are made in the source's order; the permute may stand anywhere among the steps.

    `{devices=[4,1]0,2,1,3}` to `{devices=[1,4]3,2,1,0}`: an all-to-all in the source's order makes
    `{devices=[1,4]0,2,1,3}`, and a permute brings those tiles to the target's order; or the permute comes first.
    """
    for way in keep_source_order(search.reshard):
        yield from _exchanged_and_reordered(search, way.sharding)


def _exchanged_and_reordered(search: TimeSearch, in_order: HloSharding) -> Iterator[Steps]:
    first, (source, target) = search.reshard.source, search.reshard.layouts
    made = layout_of(in_order, search.reshard.shape.dims, search.reshard.num_devices)
    sources = taken_from(made.numbers, target.numbers).tolist()
    is_reordered = sources != sorted(sources)
    found = [*search.part(first, in_order)] if is_reordered else []
    as_cut = _tiles_as_cut(source, made)
    if as_cut is not None:
        padded = tuple(tile * count for tile, count in zip(as_cut.tile, as_cut.counts, strict=True))
        for steps in search.axis_plans(first, in_order, padded):
            yield from ((*steps, end) for end in search.piecewise(as_cut, target))
            found += [(*steps, *ends) for ends in moved_edges(search, as_cut, made)]
    yield from _reordered(found, sources) if is_reordered else found


def _reordered(plans: Iterable[Steps], sources: list[int]) -> Iterator[Steps]:
    """The permute, by which each device takes the tile of its source, at every place among the steps of each plan.

    Steps behind it are those of other devices: what device d did, the one that takes its tile does.
    """
    permute, names = Permute(tuple(zip(sources, range(len(sources)), strict=True))), np.argsort(sources)
    for steps in plans:
        for at in range(len(steps), -1, -1):
            yield (*steps[:at], permute, *(step.rename_devices(names) for step in steps[at:]))


def _tiles_as_cut(source: Layout, made: Layout) -> Layout | None:
    """Where the parts of the source's tiles lie, if not where tiles of `made` should."""
    stays = tuple(np.gcd(source.counts, made.counts).tolist())
    columns = zip(stays, source.counts, source.tile, source.dims, strict=True)
    as_cut = made.tiles_of_tiles(stays, tuple(size if n == 1 else s // n * tile for n, s, tile, size in columns))
    is_same = all(np.array_equal(a, b) for a, b in zip(as_cut.bounds, made.bounds, strict=True))
    return None if is_same else as_cut


# ---- the same tiles on the same devices, but that tile edges lie elsewhere: neighbours exchange what is between


def moved_edges(search: TimeSearch, source: Layout, target: Layout) -> Iterator[Steps]:
    """In one go, or along one dim after the other, so that nothing goes round a corner.

    Both layouts have the same number of tiles along each dim, and each device has the same one.
    """
    yield from ((step,) for step in search.piecewise(source, target))
    first, last = _explicit(source), _explicit(target)
    differ = [d for d in range(len(target.dims)) if (first.cuts[d], first.tile[d]) != (last.cuts[d], last.tile[d])]
    if len(differ) > 1:
        stages = accumulate(differ, lambda layout, dim: _with_dim(layout, last, dim), initial=first)
        hops = [list(search.piecewise(before, after)) for before, after in pairwise(stages)]
        if all(hops):
            yield tuple(hop[0] for hop in hops)


def _explicit(layout: Layout) -> Layout:
    """Where tiles start and end, written out."""
    return layout if layout.cuts else layout.tiles_of_tiles(layout.counts, layout.tile)


def _with_dim(layout: Layout, other: Layout, dim: int) -> Layout:
    """Along one dim the tiles of another layout."""

    def put(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*mine[:dim], theirs[dim], *mine[dim + 1 :])

    return replace(layout, steps=put(layout.tile, other.tile), cuts=put(layout.cuts, other.cuts))
