"""The same tiles on the same devices, but that tile edges lie elsewhere: neighbours exchange what is between.

Floor: reshard.  For plans where time decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from hlosharding.reshard.for_time.search import TimeSearch
from hlosharding.reshard.layout import Layout
from hlosharding.reshard.planned_steps import Steps


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
