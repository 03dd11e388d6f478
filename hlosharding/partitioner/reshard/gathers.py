"""Ways that gather dim by dim and cut once, at the end: the dims that must be whole, or the source's tiles reordered.

Floor: partitioner/reshard.  For plans where time decides; made from layouts, so that any device orders will do.

These are the last two of the ways XLA takes (`PartialReplicateReshard` behind a permute, and replicate-then-slice in
spmd_partitioner.cc), so that where time alone decides no plan is slower for want of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hlosharding.partitioner.reshard.layout import Layout, Table
from hlosharding.partitioner.reshard.steps import AllGather, Dims, DynamicSlice, Groups, Pad, Permute, Slice, Step

if TYPE_CHECKING:
    from hlosharding.partitioner.reshard.plan import Request

Steps = tuple[Step, ...]

_SMALL = 4 << 20
"""Bytes of arrays that nobody minds having whole for a moment."""
_EXCESS = 2.1
"""How much larger than source and target a tile of other arrays may be, uneven dims included."""


def gather_then_cut(request: Request) -> Iterator[Steps]:
    """Along each dim as many tiles join as hold what every device wants, and each device keeps its part.

    Dims that need no joining are cut before or after.
    """
    source, target = request.layouts()
    if not (_is_plain(source) and _is_plain(target)):
        return
    joined = tuple(_joined(source, target, d) for d in range(request.shape.rank))
    dims = [d for d, n in enumerate(joined) if n > 1]
    early = [d for d, ways in enumerate(target.counts) if d not in dims and ways > source.counts[d]]
    for cut in ((early, ()) if early else ((),)) if dims else ():
        start, tile = source.starts, list(source.tile)
        for d in cut:
            start[:, d], tile[d] = target.starts[:, d], target.tile[d]
        whole = tuple(n * more for n, more in zip(tile, joined, strict=True))
        if not _is_affordable(request, whole):
            continue
        begin = _cut(source.starts, source.tile, start, tuple(tile), source.dims)
        end = _cut(start // whole * whole, whole, target.starts, target.tile, source.dims)
        for way in _orders(dims):
            groups = [_groups_along(d, joined[d], start // tile, request.source.tiles.flat) for d in way]
            if all(groups):
                yield (*begin, *(AllGather(d, g) for d, g in zip(way, groups, strict=True)), *end)


def _joined(source: Layout, target: Layout, dim: int) -> int:
    """The fewest neighbouring tiles along a dim that together hold what each of their devices wants."""
    low, high = (bound[:, dim] for bound in target.bounds())
    count, tile = source.counts[dim], source.tile[dim]
    for number in range(1, count):
        first = source.index[:, dim] // number * number * tile
        if count % number == 0 and ((high <= low) | (first <= low) & (high <= first + number * tile)).all():
            return number
    return count


def _is_affordable(request: Request, tile: Dims) -> bool:
    """What the target does not hold is gathered of small arrays alone, and where it is little."""
    most = max(math.prod(layout.tile) for layout in request.layouts())
    return request.shape.byte_size <= _SMALL or math.prod(tile) <= _EXCESS * most


def reorder_then_gather(request: Request) -> Iterator[Steps]:
    """The source's tiles move to where the target's copies gather them: one permute of the smaller tiles."""
    first, last = request.source, request.target
    source, target = request.layouts()
    if not (_is_plain(source) and _is_plain(target) and first.kind == last.kind == "tiled"):
        return
    if any(s % t for s, t in zip(source.counts, target.counts, strict=True)):
        return
    times = [s // t for s, t in zip(source.counts, target.counts, strict=True)]
    dims = [d for d, n in enumerate(times) if n > 1]
    if not dims or any(target.counts[d] > 1 and source.tile[d] * times[d] != target.tile[d] for d in dims):
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


def _is_plain(layout: Layout) -> bool:
    """Tiles and copies only."""
    return layout.holder is None and layout.worlds == 1 and layout.addends == 1


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
