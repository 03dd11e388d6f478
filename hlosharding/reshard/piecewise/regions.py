"""Regions: which elements of a result are which elements of an operand, and which pieces of them devices exchange.

Floor: reshard.  Knows layouts and numbers; nothing of rounds, prices or instructions.

A reshard is one region, the whole array onto itself.  Slices, pads, concatenations and reverses are several, with
other places, steps between elements, or the order turned round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from hlosharding.reshard.layout import Dims, Layout, Table


@dataclass(frozen=True, slots=True)
class Region:
    """Element `target + j * target_steps` of the result is element `source + j * source_steps` of an operand, for all
    j below `sizes`.  Source steps may be negative."""

    operand: int
    sizes: Dims
    source: Dims
    target: Dims
    source_steps: Dims
    target_steps: Dims

    @classmethod
    def whole(cls, dims: Dims, operand: int = 0) -> Region:
        """An array onto itself."""
        none, ones = (0,) * len(dims), (1,) * len(dims)
        return cls(operand, dims, none, none, ones, ones)

    @property
    def turned(self) -> Dims:
        """Dims whose order is turned round."""
        return tuple(d for d, step in enumerate(self.source_steps) if step < 0)

    def is_whole_along(self, dim: int) -> bool:
        """Does an element of a dim stay where it is?"""
        is_here = self.source[dim] == self.target[dim] == 0
        return is_here and self.source_steps[dim] == self.target_steps[dim] == 1

    @property
    def steps(self) -> tuple[Dims, Dims]:
        """Distances between elements, in the operand and in the result; empty where all are 1."""
        return _unless_ones(tuple(map(abs, self.source_steps))), _unless_ones(self.target_steps)


def _unless_ones(steps: Dims) -> Dims:
    return () if max(steps, default=1) == 1 else steps


@dataclass(frozen=True, slots=True, eq=False)
class WantedPieces:
    """The pieces of one region: what each device's target tile has in common with each tile of the operand."""

    region: Region
    receivers: Table
    holders: list[list[int]]
    """Devices with the same tile of the operand."""
    tiles: Table
    """[piece]: which of `holders` has it."""
    read: Table
    """[piece, dim]: where it starts in the operand's tile (in turned order, where the region turns)."""
    write: Table
    sizes: Table
    """Elements along each dim; with steps they span more."""
    padded_sizes: Table
    """The same, with what may come along: where only padding follows in the receiver's tile, all the sender has."""


def count_of(region: Region, source: Layout, target: Layout) -> int:
    """How many pieces `pieces_of` will find."""
    return _meeting(region, source, target).count


def pieces_of(region: Region, source: Layout, target: Layout) -> WantedPieces:
    """The pieces of a region.

    Five elements in tiles of three, reversed: of its result 4 3 2 device 0 gets 4 3 from the second tile and 2 from the
    first; device 1 gets 1 0 from the first.

    >>> from hlosharding.reshard.layout import layout_of
    >>> from hlosharding.sharding import HloSharding
    >>> half = HloSharding.parse("{devices=[2]<=[2]}")
    >>> turn = Region(0, (5,), (4,), (0,), (-1,), (1,))  # reverse
    >>> found = pieces_of(turn, layout_of(half, (5,), 2), layout_of(half, (5,), 2))
    >>> found.tiles.tolist(), found.receivers.tolist(), found.sizes[:, 0].tolist()
    ([0, 1, 0], [0, 0, 1], [1, 2, 2])
    """
    tiles = _source_tiles(source)
    receivers, numbers = _meeting(region, source, target).pairs()
    rank = len(region.sizes)
    low, high = np.zeros((2, len(receivers), rank), np.int64)
    for dim in range(rank):
        (first, last), (have_first, have_last) = _ranges(region, source, target, dim)
        ours, theirs = target.index[receivers, dim], tiles[numbers, dim + 1]
        low[:, dim] = np.maximum(first[ours], have_first[theirs])
        high[:, dim] = np.minimum(last[ours], have_last[theirs])
    write = np.asarray(region.target) + low * np.asarray(region.target_steps) - target.starts[receivers]
    read = np.asarray(region.source) + low * np.asarray(region.source_steps)
    for dim in range(rank):
        read[:, dim] -= source.starts_along(dim)[tiles[numbers, dim + 1]]
    for dim in region.turned:
        # The operand's tile is turned as a whole, the padding at its end with it.
        read[:, dim] = source.tile[dim] - 1 - read[:, dim]
    found = WantedPieces(
        region, receivers, _holders(source), numbers, read, write, sizes=high - low, padded_sizes=high - low
    )
    return found if any(region.steps) else replace(found, padded_sizes=_padded_sizes(found, source, target))


def _padded_sizes(wanted: WantedPieces, source: Layout, target: Layout) -> Table:
    """What may come along: of the last piece along a dim of the target's tile as much as both tiles have room for."""
    low, high = target.bounds
    room = np.minimum(np.asarray(source.tile) - wanted.read, np.asarray(target.tile) - wanted.write)
    is_last = wanted.write + wanted.sizes == (high - low)[wanted.receivers]
    return np.where(is_last, np.maximum(room, wanted.sizes), wanted.sizes)


def _ranges(
    region: Region, source: Layout, target: Layout, dim: int
) -> tuple[tuple[Table, Table], tuple[Table, Table]]:
    """Of each tile of target and source along a dim: the first element of the region in it, and one past the last."""
    size, step = region.sizes[dim], region.source_steps[dim]
    low, high = target.tiles_along(dim)
    if region.is_whole_along(dim) and source.dims[dim] == target.dims[dim] == size:
        return (low, high), source.tiles_along(dim)
    ours = _counted(low - region.target[dim], high - region.target[dim], region.target_steps[dim], size)
    low, high = source.tiles_along(dim)
    if step < 0:
        low, high = region.source[dim] - high + 1, region.source[dim] - low + 1
    else:
        low, high = low - region.source[dim], high - region.source[dim]
    return ours, _counted(low, high, abs(step), size)


def _counted(low: Table, high: Table, step: int, size: int) -> tuple[Table, Table]:
    """The numbers j below `size` whose place j * step lies in [low, high)."""
    if step != 1:
        low, high = -(-low // step), -(-high // step)
    return np.minimum(np.maximum(low, 0), size), np.minimum(np.maximum(high, 0), size)


@dataclass(frozen=True, slots=True, eq=False)
class _Meeting:
    """Which source tiles each target tile meets, dim by dim; those that a target tile meets follow one another."""

    source: Layout
    target: Layout
    devices: Table
    """Those with target data."""
    order: list[Table]
    """[dim][place]: source tiles that hold anything, in the region's order."""
    first: Table
    """[device, dim]: the place of the first source tile that its target tile meets."""
    counts: Table
    """[device, dim]: how many it meets."""

    @property
    def count(self) -> int:
        """Pairs of a device and a source tile that its target tile meets, of its own manual group if it has one."""
        return int(self.counts.prod(axis=1).sum())

    def pairs(self) -> tuple[Table, Table]:
        """(device, row of `_source_tiles`), in this order."""
        times = self.counts.prod(axis=1)
        rows = np.repeat(np.arange(len(self.devices)), times)
        left = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
        index: list[Table] = []
        for dim in reversed(range(len(self.order))):
            left, digit = np.divmod(left, self.counts[rows, dim])
            index.insert(0, self.order[dim][self.first[rows, dim] + digit])
        receivers = self.devices[rows]
        wanted = self.source.codes_of(self.target.manual_group[receivers], index)
        tiles = _source_tiles(self.source)
        codes = self.source.codes_of(tiles[:, 0], tiles[:, 1:].T)
        by_code = np.argsort(codes)
        # A tile that nobody of the manual group holds has no code: the search then ends beside it, or behind the last
        # one.
        place = np.minimum(np.searchsorted(codes[by_code], wanted), len(codes) - 1)
        numbers = by_code[place]
        there = codes[numbers] == wanted
        receivers, numbers = receivers[there], numbers[there]
        inside = np.lexsort((numbers, receivers))
        return receivers[inside], numbers[inside]


# `count_of` and `pieces_of` ask for the same one, one behind the other.
@lru_cache(maxsize=8)
def _meeting(region: Region, source: Layout, target: Layout) -> _Meeting:
    """Along each dim apart: so this takes as long as there are tiles, not pairs of them."""
    devices = np.flatnonzero(target.has_data())
    order: list[Table] = []
    first, counts = np.zeros((2, len(devices), len(region.sizes)), np.int64)
    for dim in range(len(region.sizes)):
        (low, high), (have_low, have_high) = _ranges(region, source, target, dim)
        real = np.flatnonzero(have_high > have_low)
        order.append(real[np.argsort(have_low[real], kind="stable")])
        begin = np.searchsorted(have_high[order[dim]], low, side="right")
        end = np.where(high > low, np.searchsorted(have_low[order[dim]], high, side="left"), begin)
        first[:, dim] = begin[target.index[devices, dim]]
        counts[:, dim] = np.maximum(end - begin, 0)[target.index[devices, dim]]
    return _Meeting(source, target, devices, order, first, counts)


@lru_cache(maxsize=256)
def _source_tiles(source: Layout) -> Table:
    """Distinct tiles as rows (manual group, index), in the order in which devices hold them."""
    rows = np.concatenate([source.manual_group[:, None], source.index], axis=1)
    if source.holder is not None:
        return rows[source.holder : source.holder + 1]
    return rows[[devices[0] for devices in _holders(source)]]


def _holders(source: Layout) -> list[list[int]]:
    """The devices that hold each of these tiles."""
    if source.holder is not None:
        return [[source.holder]]
    holders: dict[int, list[int]] = {}
    for device, code in enumerate(source.tile_codes.tolist()):
        holders.setdefault(code, []).append(device)
    return list(holders.values())
