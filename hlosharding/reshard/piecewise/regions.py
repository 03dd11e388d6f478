"""Regions: which elements of a result are which elements of an operand, and which pieces of them devices exchange.

Floor: reshard.  Knows layouts and numbers; nothing of rounds, prices or instructions.

A reshard is one region, the whole array onto itself.  Slices, pads, concatenations and reverses are several, with
other places, steps between elements, or the order turned round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    @property
    def steps(self) -> tuple[Dims, Dims]:
        """Distances between elements, in the operand and in the result; empty where all are 1."""
        return _unless_ones(tuple(map(abs, self.source_steps))), _unless_ones(self.target_steps)


def _unless_ones(steps: Dims) -> Dims:
    return () if max(steps, default=1) == 1 else steps


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
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
    return len(_overlaps(region, source, target, _source_tiles(source)[0])[0])


def pieces_of(region: Region, source: Layout, target: Layout) -> Wanted:
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
    tiles, holders = _source_tiles(source)
    receivers, numbers = _overlaps(region, source, target, tiles)
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
        read[:, dim] = source.tile[dim] - 1 - read[:, dim]
    found = Wanted(region, receivers, holders, numbers, read, write, sizes=high - low, padded_sizes=high - low)
    return found if any(region.steps) else replace(found, padded_sizes=_padded_sizes(found, source, target))


def _padded_sizes(wanted: Wanted, source: Layout, target: Layout) -> Table:
    """What may come along: of the last piece along a dim of the target's tile as much as both tiles have room for."""
    low, high = target.bounds()
    room = np.minimum(np.asarray(source.tile) - wanted.read, np.asarray(target.tile) - wanted.write)
    is_last = wanted.write + wanted.sizes == (high - low)[wanted.receivers]
    return np.where(is_last, np.maximum(room, wanted.sizes), wanted.sizes)


def _ranges(
    region: Region, source: Layout, target: Layout, dim: int
) -> tuple[tuple[Table, Table], tuple[Table, Table]]:
    """Of each tile of target and source along a dim: the first element of the region in it, and one past the last."""
    size, step = region.sizes[dim], region.source_steps[dim]
    low, high = target.tiles_along(dim)
    ours = _counted(low - region.target[dim], high - region.target[dim], region.target_steps[dim], size)
    low, high = source.tiles_along(dim)
    if step < 0:
        low, high = region.source[dim] - high + 1, region.source[dim] - low + 1
    else:
        low, high = low - region.source[dim], high - region.source[dim]
    return ours, _counted(low, high, abs(step), size)


def _counted(low: Table, high: Table, step: int, size: int) -> tuple[Table, Table]:
    """The numbers j below `size` whose place j * step lies in [low, high)."""
    return np.clip(-(-low // step), 0, size), np.clip(-(-high // step), 0, size)


def _overlaps(region: Region, source: Layout, target: Layout, tiles: Table) -> tuple[Table, Table]:
    """(device, source tile) wherever the device's target tile wants elements of that source tile."""
    wanted = target.manual_group[:, None] == tiles[None, :, 0]
    wanted &= target.has_data()[:, None]
    for dim in range(len(region.sizes)):
        (first, last), (have_first, have_last) = _ranges(region, source, target, dim)
        meets = np.minimum(last[:, None], have_last) > np.maximum(first[:, None], have_first)
        wanted &= meets[target.index[:, dim][:, None], tiles[None, :, dim + 1]]
    receivers, numbers = np.nonzero(wanted)
    return receivers, numbers


def _source_tiles(source: Layout) -> tuple[Table, list[list[int]]]:
    """Distinct tiles as rows (manual group, index), and the devices that hold each."""
    rows = np.concatenate([source.manual_group[:, None], source.index], axis=1)
    if source.holder is not None:
        return rows[source.holder : source.holder + 1], [[source.holder]]
    holders: dict[Dims, list[int]] = {}
    for device, tile in enumerate(map(tuple, rows.tolist())):
        holders.setdefault(tile, []).append(device)
    return np.array(list(holders), np.int64), list(holders.values())
