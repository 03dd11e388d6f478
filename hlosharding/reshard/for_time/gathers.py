"""Ways that gather dim by dim and cut once, at the end: the dims that must be whole, or the source's tiles reordered.

Floor: reshard.  For plans where time decides; made from layouts, so that any device orders will do.

These are the last two of the ways XLA takes (`PartialReplicateReshard` behind a permute, and replicate-then-slice in
spmd_partitioner.cc), so that where time alone decides no plan is slower for want of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hlosharding.reshard.axis_plan import least_seconds, paired
from hlosharding.reshard.for_time.tile_edges import moved_edges
from hlosharding.reshard.layout import Layout, Table
from hlosharding.reshard.matching import MOST_MATCHED, matched, shared
from hlosharding.reshard.steps import AllGather, Dims, DynamicSlice, Groups, Pad, Permute, Slice, Step

if TYPE_CHECKING:
    from hlosharding.reshard.planner import Request

Steps = tuple[Step, ...]


def gather_then_cut(request: Request) -> Iterator[Steps]:
    """Along each dim as many tiles join as hold what every device wants, and each device keeps its part.

    Dims that need no joining are cut before or after.
    """
    source, target = request.layouts()
    if not (source.is_plain and target.is_plain):
        return
    joined = tuple(_joined(source, target, d) for d in range(request.shape.rank))
    dims = [d for d, n in enumerate(joined) if n > 1]
    early = [d for d, ways in enumerate(target.counts) if d not in dims and ways > source.counts[d]]
    for cut in ((early, ()) if early else ((),)) if dims else ():
        start, tile = source.starts, list(source.tile)
        for d in cut:
            start[:, d], tile[d] = target.starts[:, d], target.tile[d]
        whole = tuple(n * more for n, more in zip(tile, joined, strict=True))
        received = (math.prod(whole) - math.prod(tile)) * request.shape.byte_size / request.shape.size
        if least_seconds(received, request.machine) > request.longest:
            continue
        begin = _cut(source.starts, source.tile, start, tuple(tile), source.dims)
        end = _cut(start // whole * whole, whole, target.starts, target.tile, source.dims)
        groups = {d: _groups_along(d, joined[d], start // tile, request.source.tiles.flat) for d in dims}
        if all(groups.values()):
            yield from ((*begin, *(AllGather(d, groups[d]) for d in way), *end) for way in _orders(dims))


def _joined(source: Layout, target: Layout, dim: int) -> int:
    """The fewest neighbouring tiles along a dim that together hold what each of their devices wants."""
    low, high = (bound[:, dim] for bound in target.bounds())
    count, tile = source.counts[dim], source.tile[dim]
    for number in range(1, count):
        first = source.index[:, dim] // number * number * tile
        if count % number == 0 and ((high <= low) | (first <= low) & (high <= first + number * tile)).all():
            return number
    return count


def reorder_then_gather(request: Request) -> Iterator[Steps]:
    """The source's tiles move to where the target's copies gather them: one permute of the smaller tiles."""
    first, last = request.source, request.target
    source, target = request.layouts()
    if not (source.is_plain and target.is_plain and first.kind == last.kind == "tiled"):
        return
    if any(s % t for s, t in zip(source.counts, target.counts, strict=True)):
        return
    times = [s // t for s, t in zip(source.counts, target.counts, strict=True)]
    dims = [d for d, n in enumerate(times) if n > 1]
    if not dims:
        return
    if any(target.counts[d] > 1 and source.tile[d] * times[d] != target.tile[d] for d in dims):
        if request.is_close_look:
            yield from _fetch_then_gather(request, times, dims)
        return
    rank = len(times)
    parts = np.asarray(last.tiles.flat).reshape(*target.counts, *times, -1)
    nested = parts.transpose([axis for d in range(rank) for axis in (d, rank + d)] + [2 * rank])
    pairs = sorted(zip(first.tiles.flat, nested.ravel().tolist(), strict=True))
    move = (Permute(tuple(pairs)),) if any(a != b for a, b in pairs) else ()
    gathered = tuple(n * more for n, more in zip(source.tile, times, strict=True))
    end = (Slice(target.tile),) if gathered != target.tile else ()
    for way in _orders(dims):
        yield (*move, *(AllGather(d, _rows(parts, rank + d)) for d in way), *end)


def _fetch_then_gather(request: Request, times: Sequence[int], dims: Sequence[int]) -> Iterator[Steps]:
    """Where tiles do not nest: every copy of a target tile fetches a part of it, then they gather."""
    (source, target), n = request.layouts(), request.num_devices
    rank = len(times)
    parts = request.target.tiles.array.reshape(*target.counts, *times, -1)
    fine = _parted(target, times, parts)
    gathered = tuple(size * more for size, more in zip(fine.tile, times, strict=True))
    end = (Slice(target.tile),) if gathered != target.tile else ()
    assigned = [parts]
    if n <= MOST_MATCHED:
        # Each makes the part of its target tile of which it holds most.
        score = shared(source, fine)
        score[(target.index[:, None] != target.index[None]).any(axis=2)] = -1
        maker = np.empty(n, np.int64)
        maker[matched(score)] = np.arange(n)
        assigned.append(maker[parts])
    for makers in assigned:
        fine = _parted(target, times, makers)
        for fetch in _fetched(request, source, fine):
            for way in _orders(dims):
                yield (*fetch, *(AllGather(d, _rows(makers, rank + d)) for d in way), *end)


def _parted(target: Layout, times: Sequence[int], makers: npt.NDArray[np.int64]) -> Layout:
    """Parts of the target's tiles; `makers`: devices as an array over tiles, parts of each dim, and copies."""
    rank, n = len(times), target.num_devices
    places = np.moveaxis(np.indices(makers.shape), 0, -1).reshape(n, -1)
    index = np.empty((n, rank), np.int64)
    index[makers.ravel()] = places[:, :rank] * np.array(times) + places[:, rank:-1]
    counts = tuple(count * more for count, more in zip(target.counts, times, strict=True))
    return replace(target, counts=counts, index=index).nested(target.counts, target.tile)


def _fetched(request: Request, source: Layout, fine: Layout) -> Iterator[Steps]:
    """Directly, or as whole tiles, whose borders then move."""
    yield from ((step,) for step in request.direct(source, fine))
    taken_from = paired(source.numbers, fine.numbers).tolist()
    move = (Permute(tuple(zip(taken_from, range(len(taken_from)), strict=True))),)
    for steps in moved_edges(request, replace(source, index=fine.index), fine):
        yield (*move, *steps)


def _orders(dims: Sequence[int]) -> Iterator[Sequence[int]]:
    """Minor dims first, or major ones."""
    yield dims[::-1]
    if len(dims) > 1:
        yield dims


def _rows(devices: npt.NDArray[np.int64], axis: int) -> Groups:
    """Device groups along an axis."""
    return tuple(map(tuple, np.moveaxis(devices, axis, -1).reshape(-1, devices.shape[axis]).tolist()))


def _groups_along(dim: int, joined: int, index: Table, order: Sequence[int]) -> Groups:
    """Groups with all of `joined` neighbouring tiles and the same along other dims, copies by their number; none if
    devices do not pair up so.
    """
    members: dict[tuple[int, ...], list[list[int]]] = {}
    for device in order:
        place = index[device].tolist()
        place[dim], mine = divmod(place[dim], joined)
        members.setdefault(tuple(place), [[] for _ in range(joined)])[mine].append(device)
    if any(len(copies) != len(row[0]) for row in members.values() for copies in row):
        return ()
    return tuple(group for row in members.values() for group in zip(*row, strict=True))


def _cut(have: Table, tile: Dims, want: Table, size: Dims, sizes: Dims) -> Steps:
    """From tiles at `have` of an array of `sizes` to the parts of them at `want`: padded where a part hangs over."""
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
