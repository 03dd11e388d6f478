"""Where every device's tile lies, as arrays over devices: what planning needs of a sharding.

Floor: reshard.  Knows shardings and sizes; nothing of steps, prices or instructions.

Tiles have the ceiling size and lie side by side; what hangs over the end of a dim is padding, whose content nobody
knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hlosharding.errors import PartitionError
from hlosharding.ir import Shape
from hlosharding.sharding import HloSharding, SubgroupType, member_numbers, tile_indices

Dims = tuple[int, ...]
Table = npt.NDArray[np.int64]
Elements = float | npt.NDArray[np.float64]


# Equal to itself alone, for arrays have no hash: as `layout_of` gives the same one again, layouts can be keys, as of
# `regions._meeting`.
@dataclass(frozen=True, eq=False)
class Layout:
    """One array over `num_devices` devices.  What is asked of it is found once."""

    num_devices: int
    dims: Dims
    """Global sizes."""
    counts: Dims
    """Tiles per dim."""
    index: Table
    """[device, dim]: which tile."""
    holder: int | None
    """The only device with data, of a maximal sharding; else None."""
    manual_group: Table
    """[device]: the least device of its manual group.  Data never crosses from one group to another."""
    partial_sum: Table
    """[device]: which partial sum of the value it holds; 0 everywhere if the value is whole."""
    steps: Dims | None = None
    """From one tile to the next, where that is not the rounded-up share of a dim."""
    cuts: tuple[tuple[Dims, Dims], ...] = ()
    """Per dim, where tiles start and where they end, if not `steps` apart: tiles of tiles, each padded at its end."""

    @cached_property
    def tile(self) -> Dims:
        """Sizes of the local tile, padding included."""
        if self.steps is not None:
            return self.steps
        return tuple(-(-size // ways) for size, ways in zip(self.dims, self.counts, strict=True))

    @cached_property
    def num_manual_groups(self) -> int:
        """How many manual groups there are."""
        return len(set(self.manual_group.tolist()))

    @property
    def copies(self) -> int:
        """Devices with the same tile, where there are only tiles and copies."""
        return self.num_devices // math.prod(self.counts)

    @property
    def is_plain(self) -> bool:
        """Are there tiles and copies only?"""
        return self.holder is None and not self.manual_group.any() and not self.partial_sum.any()

    @property
    def numbers(self) -> Table:
        """[device]: which tile, as one number."""
        return np.asarray(np.ravel_multi_index(tuple(self.index.T), self.counts), np.int64)

    @cached_property
    def tile_codes(self) -> Table:
        """[device]: one number for its manual group and tile."""
        return self.codes_of(self.manual_group, self.index.T)

    def codes_of(self, groups: Table, index: Iterable[Table]) -> Table:
        """One number for each manual group and index of a tile."""
        codes = groups
        for count, along in zip(self.counts, index, strict=True):
            codes = codes * count + along
        return codes

    @cached_property
    def num_partial_sums(self) -> int:
        """How many partial sums make up the value; 1 of a whole one."""
        return max(self.partial_sum.tolist(), default=0) + 1

    @property
    def starts(self) -> Table:
        """[device, dim]: where the tile starts, perhaps beyond the end."""
        if self.cuts:
            return np.stack([self.starts_along(d)[self.index[:, d]] for d in range(len(self.dims))], axis=1)
        return self.index * np.asarray(self.tile, np.int64)

    def starts_along(self, dim: int) -> Table:
        """[tile]: where each tile along a dim starts, perhaps beyond the end."""
        if self.cuts:
            return np.array(self.cuts[dim][0], np.int64)
        return np.arange(self.counts[dim], dtype=np.int64) * self.tile[dim]

    @cached_property
    def bounds(self) -> tuple[Table, Table]:
        """[device, dim] start and end of the real elements of each device's tile; empty where it holds none."""
        starts, sizes = self.starts, np.asarray(self.dims, np.int64)
        low, high = np.minimum(starts, sizes), np.minimum(starts + np.asarray(self.tile, np.int64), sizes)
        for d, (_, ends) in enumerate(self.cuts):
            high[:, d] = np.maximum(low[:, d], np.minimum(high[:, d], np.array(ends)[self.index[:, d]]))
        if self.holder is not None:
            others = np.arange(self.num_devices) != self.holder
            low[others] = 0
            high[others] = 0
        # Found once and given to all who ask: whoever wrote into them would move everybody's tiles.
        for bound in (low, high):
            bound.flags.writeable = False
        return low, high

    def tiles_along(self, dim: int) -> tuple[Table, Table]:
        """Start and end of the real elements of every tile along a dim."""
        starts, size = self.starts_along(dim), self.dims[dim]
        low, high = np.minimum(starts, size), np.minimum(starts + self.tile[dim], size)
        return low, np.maximum(low, np.minimum(high, np.array(self.cuts[dim][1]))) if self.cuts else high

    def tiles_of_tiles(self, outer: Dims, tile: Dims) -> Layout:
        """The same index, but along each dim `outer` tiles of size `tile` are each cut into equal parts.

        >>> rows = layout_of(HloSharding.parse("{devices=[4]<=[4]}"), (10,), 4).tiles_of_tiles((2,), (5,))
        >>> [bound[:, 0].tolist() for bound in rows.bounds]
        [[0, 3, 5, 8], [3, 5, 8, 10]]
        """
        parts = tuple(count // n for count, n in zip(self.counts, outer, strict=True))
        steps = tuple(-(-size // n) for size, n in zip(tile, parts, strict=True))
        cuts: list[tuple[Dims, Dims]] = []
        for n, part, whole, step in zip(outer, parts, tile, steps, strict=True):
            starts = [(i * whole + min(whole, j * step), (i + 1) * whole) for i in range(n) for j in range(part)]
            cuts.append((tuple(start for start, _ in starts), tuple(min(start + step, end) for start, end in starts)))
        return replace(self, holder=None, steps=steps, cuts=tuple(cuts))

    def flatten(self, runs: tuple[Dims, ...]) -> Layout | None:
        """The same tiles where each run of dims counts as one; None where a tile is then no run of elements.

        >>> rows = layout_of(HloSharding.parse("{devices=[2,1]<=[2]}"), (5, 6), 2).flatten(((0, 1),))
        >>> rows.dims, rows.steps
        ((30,), (18,))
        """
        dims = tuple(math.prod(self.dims[d] for d in run) for run in runs)
        split = [[d for d in run if self.counts[d] > 1] for run in runs]
        for run, parts in zip(runs, split, strict=True):
            # Only along the first dim of a run, but for dims of size 1, is a tile one run of elements.
            if len(parts) > 1 or any(math.prod(self.dims[d] for d in run if d < part) > 1 for part in parts):
                return None
        counts = tuple(self.counts[parts[0]] if parts else 1 for parts in split)
        steps = tuple(math.prod(self.tile[d] for d in run) for run in runs)
        columns = [self.index[:, parts[0]] if parts else np.zeros(self.num_devices, np.int64) for parts in split]
        index = np.stack(columns, axis=1) if columns else np.zeros((self.num_devices, 0), np.int64)
        return Layout(self.num_devices, dims, counts, index, self.holder, self.manual_group, self.partial_sum, steps)

    def has_data(self) -> npt.NDArray[np.bool_]:
        """[device]: does it hold real elements?"""
        low, high = self.bounds
        found = np.logical_and.reduce(high > low, axis=1)
        return found if self.holder is None else found & (np.arange(self.num_devices) == self.holder)


@lru_cache(maxsize=16384)
def layout_of(sharding: HloSharding, dims: Dims, num_devices: int) -> Layout:
    """The layout of a leaf sharding; raises PartitionError where it says nothing about single devices.

    >>> layout_of(HloSharding.parse("{devices=[2,2]<=[4] last_tile_dim_replicate}"), (5,), 4).starts[:, 0].tolist()
    [0, 0, 3, 3]
    """
    if sharding.kind == "tiled":
        return Layout(num_devices, dims, sharding.data_dims, *_places(sharding, len(dims), num_devices))
    if sharding.kind not in ("replicated", "maximal", "unreduced"):
        raise PartitionError(f"an array sharded {sharding} cannot be resharded")
    whole, none = _nothing((num_devices, len(dims))), _nothing((num_devices,))
    partial = np.arange(num_devices) if sharding.kind == "unreduced" else none
    return Layout(num_devices, dims, (1,) * len(dims), whole, sharding.device, none, partial)


@lru_cache(maxsize=64)
def _nothing(shape: Dims) -> Table:
    # One table for all layouts: a reader may tell by its identity that there are no groups.
    found = np.zeros(shape, np.int64)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=4096)
def _places(sharding: HloSharding, rank: int, num_devices: int) -> tuple[Table, None, Table, Table]:
    """Index, no holder, manual group and partial sum of a tiled sharding: the same for all sizes."""
    if sharding.tiled_data_rank != rank:
        raise PartitionError(f"{sharding} tiles {sharding.tiled_data_rank} dims, the array has {rank}")
    devices = sharding.tiles.array
    if devices.size != num_devices or devices.max(initial=0) >= num_devices:
        raise PartitionError(f"{sharding} does not name each of {num_devices} devices once")

    def along(kind: SubgroupType) -> Table:
        is_there = kind in sharding.subgroup_types
        return np.array(member_numbers(sharding, num_devices, kind)) if is_there else _nothing((num_devices,))

    manual = _by_least(along("manual")) if "manual" in sharding.subgroup_types else along("manual")
    return tile_indices(sharding, rank, num_devices), None, manual, along("unreduced")


def _by_least(group: Table) -> Table:
    """Groups named by their least device, so that two numberings of one partition are equal."""
    least = dict[int, int]()
    return np.array([least.setdefault(number, device) for device, number in enumerate(group.tolist())], np.int64)


def missing_elements(source: Layout, target: Layout) -> Table:
    """[device]: real elements of its target tile that its source tile lacks (a complete source).

    >>> rows, columns = HloSharding.parse("{devices=[2,1]<=[2]}"), HloSharding.parse("{devices=[1,2]<=[2]}")
    >>> missing_elements(layout_of(rows, (4, 4), 2), layout_of(columns, (4, 4), 2)).tolist()
    [4, 4]
    """
    low, high = target.bounds
    have_low, have_high = source.bounds
    wanted = np.prod(np.maximum(high - low, 0), axis=1)
    both = np.prod(np.maximum(np.minimum(high, have_high) - np.maximum(low, have_low), 0), axis=1)
    if target.holder is not None:
        wanted = wanted * (np.arange(target.num_devices) == target.holder)
        both = both * (np.arange(target.num_devices) == target.holder)
    if source.holder is not None:
        both = both * (np.arange(source.num_devices) == source.holder)
    return wanted - both


def least_mean_elements(source: Layout, target: Layout) -> float:
    """Lower bound on elements received, mean over devices."""
    if source.num_partial_sums == target.num_partial_sums:
        return float(missing_elements(source, target).mean())
    if source.num_partial_sums < target.num_partial_sums:
        return 0.0  # One keeps the value, the others hold nothing.
    low, high = target.bounds
    wanted = float(np.prod(np.maximum(high - low, 0), axis=1).sum())
    # Each partial sum that stays is a sum of its own; where its parts meet is not looked at.
    stay = target.num_partial_sums
    elements = float(np.prod(source.dims)) * source.num_manual_groups * stay
    at_home = elements if stay > 1 else _elements_at_home(source, target)
    return received_elements(wanted, elements, source.num_partial_sums / stay, at_home) / source.num_devices


def received_elements(wanted: Elements, elements: Elements, sums: Elements, at_home: Elements) -> Any:
    """Lower bound on elements that all devices receive together; arrays of cases at once, or numbers.

    The partial `sums` of each of the `elements` must first meet, which takes one message less than there are, and then
    reach every device that wants it (`wanted`: elements of all their tiles): one message each, but for those `at_home`,
    which meet where they are wanted.

    >>> float(received_elements(wanted=16, elements=4, sums=4, at_home=4))  # an all-reduce of four numbers by four
    24.0
    """
    return np.maximum(0, wanted + elements * (sums - 1) - at_home)


def _elements_at_home(source: Layout, target: Layout) -> int:
    """Elements that some device both holds (or a partial sum of them) and wants; each manual group has its own.

    What a tile of the source and a tile of the target share, no other two tiles do: so no element is counted twice.
    """
    (low, high), (want_low, want_high) = source.bounds, target.bounds
    start, end = np.maximum(low, want_low), np.minimum(high, want_high)
    shared = np.maximum(end - start, 0).prod(axis=1)
    boxes = zip(source.manual_group.tolist(), map(tuple, start.tolist()), shared.tolist(), strict=True)
    return sum(elements for _, _, elements in set(boxes))


# ---- what a reshard takes at least, whatever the plan: elements that devices receive, and from how many others
#
# Knows layouts; nothing of steps or prices.


class Least(NamedTuple):
    """What no plan can do without."""

    elements: float
    """That a device receives, mean over devices."""
    reach: int
    """How many devices' data some device ends up with, its own included."""
    busiest: float
    """Elements that some device receives."""

    def mean_bytes(self, shape: Shape) -> float:
        """That a device receives of an array, mean over devices."""
        return self.elements * shape.byte_size / max(1, shape.size)


def least_of(source: HloSharding, target: HloSharding, dims: Dims, num_devices: int) -> Least:
    """The least between two leaf shardings of an array of global `dims`.  Remembered for all sizes that are cut alike.

    Tiles of 4 elements to one tile of 8: a device lacks 4, and hears from one other.

    >>> least_of(HloSharding.parse("{devices=[2]<=[2]}"), HloSharding.replicate(), (8,), 2)
    Least(elements=4.0, reach=2, busiest=4.0)
    """
    block = common_block(source, target, dims)
    found = _least(source, target, tuple(size // unit for size, unit in zip(dims, block, strict=True)), num_devices)
    times = math.prod(block)
    return Least(found.elements * times, found.reach, found.busiest * times)


@lru_cache(maxsize=16384)
def _least(source: HloSharding, target: HloSharding, dims: Dims, num_devices: int) -> Least:
    first, last = layout_of(source, dims, num_devices), layout_of(target, dims, num_devices)
    met, own = _tiles_met(first, last)
    if first.num_partial_sums == last.num_partial_sums:
        missing = missing_elements(first, last)
        return Least(float(missing.mean()), 1 + int((met - own).max()), float(missing.max()))
    # Where partial sums meet is free: the busiest device need not receive more than the mean.
    mean = least_mean_elements(first, last)
    sums = max(1, first.num_partial_sums // last.num_partial_sums)
    return Least(mean, max(1, sums * int(met.max())), mean)


def _tiles_met(source: Layout, target: Layout) -> tuple[Table, Table]:
    """[device]: how many of the source's tiles its target tile meets; 1 where its own is one of them, else 0."""
    (low, high), (have_low, have_high) = target.bounds, source.bounds
    # A dim of no elements has tiles of none, by which nothing can be divided.
    tile = np.maximum(np.array(source.tile, np.int64), 1)
    met = np.multiply.reduce(np.maximum(-(-high // tile) - low // tile, 0), axis=1)
    shared = np.logical_and.reduce(np.minimum(high, have_high) > np.maximum(low, have_low), axis=1)
    return met * target.has_data(), shared.astype(np.int64)


def common_block(source: HloSharding, target: HloSharding, dims: Dims) -> Dims:
    """The largest blocks of elements that no tile edge of two leaf shardings cuts.

    With blocks for elements the two lie in the same tiles: what is true of those is true of all sizes of a block.

    >>> rows, columns = HloSharding.parse("{devices=[4,1]<=[4]}"), HloSharding.parse("{devices=[1,4]<=[4]}")
    >>> common_block(rows, columns, (20, 10))
    (5, 1)
    """
    if source.kind != "tiled" and target.kind != "tiled":
        return tuple(max(1, size) for size in dims)
    counts = [sharding.data_dims or (1,) * len(dims) for sharding in (source, target)]
    return tuple(
        max(1, math.gcd(size, -(-size // have), -(-size // want)))
        for size, have, want in zip(dims, *counts, strict=True)
    )
