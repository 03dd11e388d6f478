"""Plans that gather dim by dim and cut once, at the end: the dims that must be whole, or the source's tiles reordered.

Floor: reshard.  For plans where time decides; made from layouts, so that any device orders will do.

These are the last two of the plans XLA makes (`PartialReplicateReshard` behind a permute, and replicate-then-slice in
spmd_partitioner.cc), so that where time alone decides no plan is slower for want of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hlosharding.reshard.for_time.search import TimeSearch, is_close_look
from hlosharding.reshard.intermediates import keep_source_order
from hlosharding.reshard.layout import Dims, Layout, Table, layout_of
from hlosharding.reshard.objectives import least_seconds
from hlosharding.reshard.request import Steps
from hlosharding.reshard.steps import AllGather, DynamicSlice, Pad, Permute, Slice
from hlosharding.reshard.subgroups import MOST_MATCHED, count_shared, match_rows, staying_first, taken_from
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Groups

# The dims that must be whole


def gather_then_cut(search: TimeSearch) -> Iterator[Steps]:
    """Along each dim as many tiles join as hold what every device wants, and each device keeps its part.

    Dims that need no joining are cut before, where all members of a gather cut the same part, and after.
    `{devices=[4,1,2]<=[8] last_tile_dim_replicate}` to `{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}` of
    f32[8,8]: every device wants some of each row tile, so all four join; dim 1 needs no joining.

        cut f32[2,8] -> f32[2,4]    all-gather dim 0 -> f32[8,4]
        all-gather dim 0 f32[2,8] -> f32[8,8]    cut -> f32[8,4]
    """
    source, target = search.reshard.layouts
    if not (source.is_plain and target.is_plain):
        return
    joined = tuple(_joined(source, target, d) for d in range(search.reshard.shape.rank))
    if max(joined, default=1) == 1:
        return
    uncut = [d for d, n in enumerate(joined) if n == 1 and target.counts[d] > source.counts[d]]
    if uncut:
        yield from _gathered_and_cut(search, joined, uncut)
    yield from _gathered_and_cut(search, joined, ())


def _joined(source: Layout, target: Layout, dim: int) -> int:
    """The fewest neighbouring tiles along a dim that together hold what each of their devices wants."""
    low, high = (bound[:, dim] for bound in target.bounds)
    count, tile = source.counts[dim], source.tile[dim]
    # Only so many make groups of one size.
    for number in [n for n in range(1, count) if count % n == 0]:
        first = source.index[:, dim] // number * number * tile
        # Who wants no data is content with any tiles.
        if ((high <= low) | (first <= low) & (high <= first + number * tile)).all():
            return number
    return count


def _gathered_and_cut(search: TimeSearch, joined: Dims, cut_first: Sequence[int]) -> Iterator[Steps]:
    """Dims `cut_first` are cut to the target's tiles, `joined` tiles gathered along each dim, and the rest cut.

    Nothing where devices do not pair up so, or the bytes alone take too long.
    """
    reshard = search.reshard
    source, target = reshard.layouts
    # `starts` is made anew each time: it may be written into.
    start, tile = source.starts, list(source.tile)
    for d in cut_first:
        start[:, d], tile[d] = target.starts[:, d], target.tile[d]
    gathered = tuple(n * more for n, more in zip(tile, joined, strict=True))
    received = (math.prod(gathered) - math.prod(tile)) * reshard.shape.byte_size / reshard.shape.size
    if least_seconds(received, reshard.machine) > search.known_seconds:
        return
    dims = [d for d, n in enumerate(joined) if n > 1]
    groups = {d: _groups_along(d, joined[d], start // tile, reshard.source.tiles.flat) for d in dims}
    if all(groups.values()):
        first_cut = _cut(source.starts, source.tile, start, tuple(tile), source.dims)
        last_cut = _cut(start // gathered * gathered, gathered, target.starts, target.tile, source.dims)
        for order in _orders(dims):
            yield (*first_cut, *(AllGather(groups[d], d) for d in order), *last_cut)


def _groups_along(dim: int, joined: int, index: Table, order: Sequence[int]) -> Groups:
    """Groups with all of `joined` neighbouring tiles and the same along other dims, copies by their number; none if
    devices do not pair up so.
    """
    # By place and tile only what is there: of 100,000 tiles in a row each device may have a place of its own.
    members: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for device in order:
        place = index[device].tolist()
        place[dim], mine = divmod(place[dim], joined)
        members.setdefault(tuple(place), {}).setdefault(mine, []).append(device)
    if any(len(row) != joined or len({*map(len, row.values())}) > 1 for row in members.values()):
        return ()
    return tuple(group for row in members.values() for group in zip(*(row[n] for n in range(joined)), strict=True))


def _cut(have: Table, tile: Dims, want: Table, size: Dims, sizes: Dims) -> Steps:
    """From tiles at `have` of an array of `sizes` to the parts of them at `want`: padded where a part hangs over.

    >>> [str(step) for step in _cut(np.array([[0], [0]]), (8,), np.array([[0], [4]]), (4,), (8,))]
    ['each keeps its [4]']
    """
    # Who wants no data at all may keep whatever it has.
    offset = np.minimum(np.maximum(want - have, 0), np.asarray(tile))
    real = tuple(np.minimum(np.asarray(sizes) - have, np.asarray(tile)).max(axis=0).tolist())
    need = tuple((offset + np.asarray(size)).max(axis=0).tolist())
    steps: list[Slice | Pad] = []
    if any(n > have for n, have in zip(need, tile, strict=True)):
        # Padding is no data: it goes first, so that none of it is padded.
        steps += [Slice(real)] if real != tile else []
        steps += [Pad(tuple(map(max, need, real)))]
    if offset.any():
        return (*steps, DynamicSlice(tuple(map(tuple, offset.T.tolist())), size))
    now = steps[-1].sizes if steps else tile
    return (*steps, Slice(size)) if now != size else tuple(steps)


# The source's tiles reordered, or parts fetched


def reorder_then_gather(search: TimeSearch) -> Iterator[Steps]:
    """The source's tiles move to where the target's copies gather them: one permute of the smaller tiles.

    `{devices=[4]0,2,1,3}` to `{devices=[2,2]<=[4] last_tile_dim_replicate}`: tiles 0 and 1 make the target's first
    tile, which devices 0 and 1 want, so tile 1 moves from device 2 to device 1 and tile 2 the other way; then the
    devices 0 and 1 gather, and 2 and 3.  Where the target's tiles are not made of whole tiles of the source, each copy
    fetches a part of its target tile instead.
    """
    first, last = search.reshard.source, search.reshard.target
    source, target = search.reshard.layouts
    if not (source.is_plain and target.is_plain and first.kind == last.kind == "tiled"):
        return
    if any(s % t for s, t in zip(source.counts, target.counts, strict=True)):
        return
    times = [s // t for s, t in zip(source.counts, target.counts, strict=True)]
    dims = [d for d, n in enumerate(times) if n > 1]
    if not dims:
        return
    if all(target.counts[d] == 1 or source.tile[d] * times[d] == target.tile[d] for d in dims):
        yield from _whole_tiles_then_gather(search, times)
    elif is_close_look(search.reshard):
        yield from _parts_then_gather(search, times)


def _whole_tiles_then_gather(search: TimeSearch, times: Sequence[int]) -> Iterator[Steps]:
    first, last = search.reshard.source, search.reshard.target
    source, target = search.reshard.layouts
    rank = len(times)
    parts = np.asarray(last.tiles.flat).reshape(*target.counts, *times, -1)  # [tiles, parts of each dim, copies]
    # Each dim's parts behind its tiles: devices in the order of the source's tiles.
    makers = parts.transpose([axis for d in range(rank) for axis in (d, rank + d)] + [2 * rank])
    pairs = sorted(zip(first.tiles.flat, makers.ravel().tolist(), strict=True))
    permute = (Permute(tuple(pairs)),) if any(a != b for a, b in pairs) else ()
    for gathers in _gathers(source.tile, target.tile, times, parts):
        yield (*permute, *gathers)


def _parts_then_gather(search: TimeSearch, times: Sequence[int]) -> Iterator[Steps]:
    """Every copy of a target tile fetches a part of it, then they gather: the copies in order, or, among few devices,
    each the part of which it holds most."""
    reshard = search.reshard
    source, target = reshard.layouts
    in_order = reshard.target.tiles.array.reshape(*target.counts, *times, -1)
    assignments = [in_order]
    if reshard.num_devices <= MOST_MATCHED:
        score = count_shared(source, _in_parts(target, times, in_order))
        is_other_tile = (target.index[:, None] != target.index[None]).any(axis=2)
        # Behind all parts of its own tile, of which there is one for each of its copies: so none gets a part of
        # another.
        score[is_other_tile] = -1
        assignments.append(np.argsort(match_rows(staying_first(score)))[in_order])
    for parts in assignments:
        fine = _in_parts(target, times, parts)
        for fetch in _fetched(search, source, fine):
            for gathers in _gathers(fine.tile, target.tile, times, parts):
                yield (*fetch, *gathers)


def _gathers(tile: Dims, target_tile: Dims, times: Sequence[int], parts: Table) -> Iterator[Steps]:
    """Parts of size `tile` joined to target tiles, either order of dims; `parts`: devices as an array over tiles,
    parts of each dim, and copies."""
    rank = len(times)
    gathered = tuple(size * more for size, more in zip(tile, times, strict=True))
    cut = (Slice(target_tile),) if gathered != target_tile else ()
    for order in _orders([d for d, n in enumerate(times) if n > 1]):
        yield (*(AllGather(_groups_of(parts, rank + d), d) for d in order), *cut)


def _in_parts(target: Layout, times: Sequence[int], parts: Table) -> Layout:
    """The target's tiles, each cut into parts; `parts` as in `_gathers`."""
    rank, n = len(times), target.num_devices
    places = np.moveaxis(np.indices(parts.shape), 0, -1).reshape(n, -1)
    index = np.empty((n, rank), np.int64)
    index[parts.ravel()] = places[:, :rank] * np.array(times) + places[:, rank:-1]
    counts = tuple(count * more for count, more in zip(target.counts, times, strict=True))
    return replace(target, counts=counts, index=index).tiles_of_tiles(target.counts, target.tile)


def _fetched(search: TimeSearch, source: Layout, fine: Layout) -> Iterator[Steps]:
    """By a piecewise plan, or as whole tiles, whose edges then move."""
    yield from ((step,) for step in search.piecewise(source, fine))
    sources = taken_from(source.numbers, fine.numbers).tolist()
    permute = Permute(tuple(zip(sources, range(len(sources)), strict=True)))
    for steps in moved_edges(search, replace(source, index=fine.index), fine):
        yield (permute, *steps)


# Gathers of several dims


def _orders(dims: Sequence[int]) -> Iterator[Sequence[int]]:
    """Minor dims first, or major ones."""
    yield dims[::-1]
    if len(dims) > 1:
        yield dims


def _groups_of(devices: Table, axis: int) -> Groups:
    """Device groups along an axis."""
    return tuple(map(tuple, np.moveaxis(devices, axis, -1).reshape(-1, devices.shape[axis]).tolist()))


# ---- plans in the source's own device order, and one permute to the target's, wherever that is cheapest
#
# For plans where time decides.
#
# Whatever the two device orders are, the tile counts alone say which device axes must go where; in the source's order
# those moves have a grid.  A permute of all tiles then makes up for the order: before, between or behind the moves,
# which from then on are those of other devices.  Uneven tiles are cut as they are, padded each at its end, and a
# little travels between neighbours in the end.  XLA's all-to-alls, halo exchanges and permutes in a row are of this
# kind.


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
    # In the target's own order these plans are known already.
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
        # A hop of too many pieces has no plan, and then there is none at all.
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
