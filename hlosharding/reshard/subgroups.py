"""A tile assignment and one of its subgroups: devices with the same tile, as copies or with partial sums.

Floor: reshard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hlosharding.reshard.layout import Dims, Layout, Table
from hlosharding.reshard.request import Reshard
from hlosharding.sharding import HloSharding, SubgroupType
from hlosharding.spmd import Groups

# ---- which device shall make which tile, and whose tile a device takes where tiles only change places
#
# Knows layouts; nothing of steps.


MOST_MATCHED = 64
"""Devices: the matching is quadratic.  With half of it 6 plans are slower (at most 1.6), with double 2 faster (0.5)."""


def count_shared(source: Layout, target: Layout) -> Table:
    """[device, other]: elements of the other's target tile that the device holds."""
    (low, high), (want_low, want_high) = source.bounds, target.bounds
    both = np.minimum(high[:, None], want_high[None]) - np.maximum(low[:, None], want_low[None])
    return np.maximum(both, 0).prod(axis=2)


def staying_first(score: Table) -> Table:
    """The same order of scores, but that among equal ones those on the diagonal come first.

    >>> staying_first(np.array([[3, 3], [1, 2]])).tolist()
    [[7, 6], [2, 5]]
    """
    return 2 * score + np.eye(len(score), dtype=np.int64)


def match_rows(score: Table) -> list[int]:
    """For each row a column of its own: greedily, the largest score first, on a tie in the order of the table.

    Not the assignment of the largest total (scipy.optimize.linear_sum_assignment): a plan pays for its busiest device
    and its rounds, not for the total, and of 1950 random plans it made six dearer and two cheaper.

    >>> match_rows(np.array([[3, 5], [0, 4]]))
    [1, 0]
    """
    order = np.argsort(-score, axis=None, kind="stable")
    found, taken = [-1] * len(score), set[int]()
    for row, column in np.stack(np.unravel_index(order, score.shape), axis=1).tolist():
        if found[row] < 0 and column not in taken:
            found[row] = column
            taken.add(column)
    return found


def taken_from(have: Table, want: Table) -> Table:
    """[device]: whose tile it takes, where devices hold the tiles of numbers `have` and are to hold those of `want`.

    Devices that hold what they want keep it; the others pair up within each tile.

    >>> taken_from(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])).tolist()
    [0, 2, 1, 3]
    """
    devices = np.arange(len(have))
    moving = devices[have != want]
    staying = devices[have == want]
    # Stable, so that of each tile the first device that holds it goes with the first that wants it.
    sources = moving[np.argsort(have[moving], kind="stable")]
    targets = moving[np.argsort(want[moving], kind="stable")]
    found = np.empty_like(devices)
    found[staying] = staying
    found[targets] = sources
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Subgroup:
    """One subgroup of a tile assignment."""

    devices: Table
    types: tuple[SubgroupType, ...]
    rank: int
    """Of the array."""
    at: int
    """The dim of the subgroup."""

    @classmethod
    def of(cls, reshard: Reshard, sharding: HloSharding, kind: Literal["replicated", "unreduced"]) -> Subgroup | None:
        """The subgroup of a kind, or None."""
        rank = reshard.shape.rank
        if sharding.kind == kind:
            return cls(np.arange(reshard.num_devices).reshape(*(1,) * rank, -1), (kind,), rank, rank)
        dim = sharding.subgroup_dim(kind) if sharding.kind == "tiled" else None
        return None if dim is None else cls(sharding.tiles.array, sharding.subgroup_types, rank, dim)

    @property
    def rows(self) -> Table:
        """[group, member]"""
        return np.moveaxis(self.devices, self.at, -1).reshape(-1, self.devices.shape[self.at])

    @property
    def groups(self) -> Groups:
        """The subgroup's device groups."""
        return tuple(map(tuple, self.rows.tolist()))

    def replicate_members(self) -> HloSharding:
        """The members become copies."""
        types: list[SubgroupType] = [*self.types]
        types[self.at - self.rank] = "replicated"
        return HloSharding.subgroup(self.devices, types)

    def divisible(self, dims: Dims) -> Iterator[int]:
        """Dims that the members can split further: whole ones, and those whose tile is that of the parts together."""
        parts = self.devices.shape[self.at]
        for dim, size in enumerate(dims):
            ways = self.devices.shape[dim]
            if parts > 1 and (ways == 1 or -(-size // ways) == -(-size // (ways * parts)) * parts):
                yield dim

    def scatter(self, dim: int, mine: Layout, other: Layout) -> tuple[HloSharding, Groups]:
        """The members split `dim`, each taking the part of which `other` gives it most; groups in that order."""
        rows = self.rows
        if rows.shape[1] <= _MOST_MEMBERS:
            overlap = _Overlap(dim, mine.starts, mine.bounds, other.bounds, -(-mine.tile[dim] // rows.shape[1]))
            rows = np.array([overlap.order(row) for row in rows])
        moved = np.moveaxis(self.devices, self.at, -1)
        devices = np.moveaxis(rows.reshape(moved.shape), -1, dim + 1)
        shape = [*self.devices.shape[: self.rank], *(n for d, n in enumerate(self.devices.shape) if d >= self.rank)]
        # `at` lies behind all dims of the array, whose places stay.
        shape[dim] *= shape.pop(self.at)
        types: list[SubgroupType] = [t for d, t in enumerate(self.types, self.rank) if d != self.at]
        return HloSharding.subgroup(devices.reshape(shape), types), tuple(map(tuple, rows.tolist()))


def unlike_dims(reshard: Reshard, subgroup: Subgroup) -> Iterator[int]:
    """Dims that the members can split further; of those that neither sharding splits, and all devices split evenly,
    only the first: plans cost the same."""
    (source, target), dims = reshard.layouts, reshard.shape.dims
    is_first = True
    for dim in subgroup.divisible(dims):
        is_free = source.counts[dim] == target.counts[dim] == 1 and dims[dim] % reshard.num_devices == 0
        if is_first or not is_free:
            yield dim
        is_first = is_first and not is_free


_MOST_MEMBERS = 256
"""For whom parts are matched: it takes their number squared.  More take theirs in the order that they have; half and
double give the same plans."""


@dataclass(frozen=True, slots=True)
class _Overlap:
    """Which part of their common tile, cut along `dim`, members had better take."""

    dim: int
    starts: Table
    mine: tuple[Table, Table]
    other: tuple[Table, Table]
    size: int
    """Of a part."""

    def order(self, row: Table) -> list[int]:
        """Members in the order of the parts that they get."""
        # Members hold one tile: what lies where is asked of the first of them for all.
        starts = self.starts[row[0], self.dim] + self.size * np.arange(len(row))
        low, high = (bound[row] for bound in self.other)
        along = np.minimum(high[:, self.dim, None], starts + self.size) - np.maximum(low[:, self.dim, None], starts)
        mine_low, mine_high = (bound[row[0]] for bound in self.mine)
        across = np.maximum(np.minimum(high, mine_high) - np.maximum(low, mine_low), 0)
        across[:, self.dim] = 1
        part_of = match_rows(np.maximum(along, 0) * across.prod(axis=1)[:, None])
        return row[np.argsort(part_of)].tolist()
