"""Ways by an intermediate sharding, each half of which is planned again.

Floor: reshard.  For pairs that one axis plan does not bring to the bound, or that have no common grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hlosharding.reshard.axis_plan import least_seconds
from hlosharding.reshard.common_grid import common_grid
from hlosharding.reshard.for_time import gather_then_cut
from hlosharding.reshard.layout import Layout, layout_of, least_mean_elements
from hlosharding.reshard.matching import MOST_MATCHED, matched, shared
from hlosharding.reshard.steps import AllGather, AllReduce, Groups, Keep, Pad, Permute, ReduceScatter, Slice, Step
from hlosharding.sharding import HloSharding

if TYPE_CHECKING:
    from hlosharding.reshard.planner import Request

Steps = tuple[Step, ...]


def gather_last(request: Request) -> Iterator[Steps]:
    """Where copies grow and no grid is common: each member of a copy group fetches a part, then they gather."""
    if request.target.is_maximal() or common_grid(
        request.source, request.target, request.shape.rank, request.num_devices
    ):
        return
    subgroup = _subgroup(request, request.target, "replicated")
    source, target = request.layouts()
    if subgroup is None:
        return
    for dim in subgroup.divisible(request.shape.dims):
        way, _ = subgroup.scattered(dim, target, source)
        yield (*request.between(request.source, way).steps, *request.between(way, request.target).steps)


def gather_first(request: Request) -> Iterator[Steps]:
    """A dim becomes whole, its members copies: uneven tiles cannot always be cut further, and exchanges of gathered
    tiles may be faster than gathers of exchanged ones."""
    first, last = request.layouts()
    if request.source.kind != "tiled" or first.addends > 1 or first.worlds > 1 or first.counts == last.counts:
        return
    devices = request.source.tiles.array.reshape(*first.counts, -1)
    for dim, ways in enumerate(first.counts):
        if ways > 1:
            moved = np.moveaxis(devices, dim, -1)
            counts = (n if d != dim else 1 for d, n in enumerate(first.counts))
            way = HloSharding.partial_tile(moved.reshape(*counts, -1))
            made = layout_of(way, request.shape.dims, request.num_devices)
            gather = AllGather(dim, tuple(map(tuple, moved.reshape(-1, ways).tolist())))
            if _is_worth_gathering(request, gather, made):
                now = tuple(n * ways if d == dim else n for d, n in enumerate(first.tile))
                cut = (Slice(made.tile),) if now != made.tile else ()
                yield from ((gather, *cut, *rest) for rest in request.ways(way, request.target))


def _is_worth_gathering(request: Request, gather: AllGather, made: Layout) -> bool:
    """May a way that gathers first be faster than the one that is known?  Where tiles are even it saves some kernels
    at best."""
    (source, target), shape, machine = request.layouts(), request.shape, request.machine
    local = shape.with_dims(source.tile)
    is_even = not any(size % n for s in (source, target) for size, n in zip(s.dims, s.counts, strict=True))
    received = float(gather.received_bytes(local, request.num_devices).max())
    if is_even and received > _KERNELS * machine.launch * machine.inside.bandwidth:
        return False
    rest = least_mean_elements(made, target) * shape.byte_size / shape.size
    return gather.seconds(local, machine) + least_seconds(rest, machine) <= request.longest


_KERNELS = 4


def cut_last(request: Request) -> Iterator[Steps]:
    """Copies are cut after all else: more bytes, but the cut then is no kernel of its own."""
    source, target = request.layouts()
    if request.target.kind != "tiled" or not (source.is_plain and target.is_plain) or source.copies % target.copies:
        return
    times = source.copies // target.copies
    more = (times - 1) * request.shape.with_dims(target.tile).byte_size
    if more > request.machine.launch * request.machine.inside.bandwidth:
        return
    for dim, ways in enumerate(target.counts):
        if times > 1 and ways % times == 0 and target.tile[dim] * ways >= request.shape.dims[dim]:
            counts = [n // times if d == dim else n for d, n in enumerate(target.counts)]
            split = [*counts[: dim + 1], times, *counts[dim + 1 :], target.copies]
            devices = np.moveaxis(request.target.tiles.array.reshape(split), dim + 1, -2)
            way = HloSharding.partial_tile(devices.reshape(*counts, -1))
            cut = request.between(way, request.target).steps
            yield from ((*steps, *cut) for steps in request.ways(request.source, way))


def reorder_first(request: Request) -> Iterator[Steps]:
    """Where only the device order hides a common grid: the source's tiles move to the target's order, then go on."""
    first, last = request.source, request.target
    if first.kind != "tiled" or last.kind != "tiled" or first.tiles.flat == last.tiles.flat:
        return
    if common_grid(first, last, request.shape.rank, request.num_devices) is not None or first.is_manual_subgroup():
        return
    way = HloSharding.subgroup(np.array(last.tiles.flat).reshape(first.tiles.dims), first.subgroup_types)
    if way != first and common_grid(way, last, request.shape.rank, request.num_devices) is not None:
        yield (*request.between(first, way).steps, *request.between(way, last).steps)


def reorder_last(request: Request) -> Iterator[Steps]:
    """Each device makes the target tile of which it holds most; then one permute brings tiles where they belong."""
    last, n = request.target, request.num_devices
    if last.kind != "tiled" or last.is_manual_subgroup() or n > MOST_MATCHED:
        return
    source, target = request.layouts()
    places = np.empty(n, np.int64)  # the device whose target tile a device makes
    places[:] = matched(shared(source, target))
    maker = np.empty(n, np.int64)
    maker[places] = np.arange(n)
    way = HloSharding.subgroup(maker[last.tiles.array], last.subgroup_types)
    if way not in (request.source, last):
        permute = Permute(tuple((d, int(places[d])) for d in range(n)))
        yield (*request.between(request.source, way).steps, permute)
        yield from ((*steps, permute) for steps in gather_then_cut(replace(request, target=way)))


def tile_by_tile(request: Request) -> Iterator[Steps]:
    """Where only the device order differs: one permute of whole tiles, copies by their number."""
    first, last = request.source, request.target
    if not first.kind == last.kind == "tiled" or first.is_manual_subgroup():
        return
    if (first.subgroup_types, first.tiles.dims) == (last.subgroup_types, last.tiles.dims):
        yield (Permute(tuple(sorted(zip(first.tiles.flat, last.tiles.flat, strict=True)))),)


def reduce_first(request: Request) -> Iterator[Steps]:
    """The addends meet where they are, for all or scattered over a dim, and the sum moves on."""
    subgroup = _subgroup(request, request.source, "unreduced")
    kind = request.reduce_kind
    if subgroup is None or kind is None:
        return
    yield (AllReduce(subgroup.groups, kind), *request.between(subgroup.replicated(), request.target).steps)
    source, target = request.layouts()
    for dim in subgroup.divisible(request.shape.dims):
        way, groups = subgroup.scattered(dim, source, target)
        tile = list(source.tile)
        tile[dim] = layout_of(way, request.shape.dims, request.num_devices).tile[dim] * len(groups[0])
        padding = (Pad(tuple(tile)),) if tuple(tile) != source.tile else ()
        yield (*padding, ReduceScatter(dim, groups, kind), *request.between(way, request.target).steps)


def to_partial(request: Request) -> Iterator[Steps]:
    """Whole to partial: one member of each group keeps the value, the others hold the neutral element."""
    subgroup = _subgroup(request, request.target, "unreduced")
    kind = request.reduce_kind
    if subgroup is None or kind is None:
        return
    addend = layout_of(request.target, request.shape.dims, request.num_devices).addend
    before = request.between(request.source, subgroup.replicated())
    yield (*before.steps, Keep(tuple((addend == 0).tolist()), kind))


@dataclass(frozen=True, slots=True, eq=False)
class _Subgroup:
    """A tile assignment and one of its subgroups."""

    devices: npt.NDArray[np.int64]
    types: tuple[Any, ...]
    rank: int
    at: int
    """The dim of the subgroup."""

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """[group, member]"""
        return np.moveaxis(self.devices, self.at, -1).reshape(-1, self.devices.shape[self.at])

    @property
    def groups(self) -> Groups:
        """The subgroup's device groups."""
        return tuple(map(tuple, self.rows.tolist()))

    def replicated(self) -> HloSharding:
        """The members become copies."""
        types = [*self.types]
        types[self.at - self.rank] = "replicated"
        return HloSharding.subgroup(self.devices, types)

    def divisible(self, dims: tuple[int, ...]) -> Iterator[int]:
        """Dims that the members can split further: whole ones, and those whose tile is that of the parts together."""
        parts = self.devices.shape[self.at]
        for dim, size in enumerate(dims):
            ways = self.devices.shape[dim]
            if parts > 1 and (ways == 1 or -(-size // ways) == -(-size // (ways * parts)) * parts):
                yield dim

    def scattered(self, dim: int, mine: Layout, other: Layout) -> tuple[HloSharding, Groups]:
        """The members split `dim`, each taking the part of which `other` gives it most; groups in that order."""
        rows = np.array([_by_overlap(row, dim, mine, other) for row in self.rows])
        moved = np.moveaxis(self.devices, self.at, -1)
        devices = np.moveaxis(rows.reshape(moved.shape), -1, dim + 1)
        shape = [*self.devices.shape[: self.rank], *(n for d, n in enumerate(self.devices.shape) if d >= self.rank)]
        shape[dim] *= shape.pop(self.at)
        types = [t for d, t in enumerate(self.types, self.rank) if d != self.at]
        return HloSharding.subgroup(devices.reshape(shape), types), tuple(map(tuple, rows.tolist()))


def _by_overlap(row: npt.NDArray[np.int64], dim: int, mine: Layout, other: Layout) -> list[int]:
    """Members in the order of the parts they get: greedily, the largest overlap first."""
    parts = len(row)
    start, size = mine.starts[row[0], dim], -(-mine.tile[dim] // parts)
    starts = start + size * np.arange(parts)
    low, high = other.bounds()
    along = np.minimum(high[row, dim][:, None], starts + size) - np.maximum(low[row, dim][:, None], starts)
    mine_low, mine_high = (bound[row[0]] for bound in mine.bounds())
    across = np.maximum(np.minimum(high[row], mine_high) - np.maximum(low[row], mine_low), 0)
    across[:, dim] = 1
    score = np.maximum(along, 0) * across.prod(axis=1)[:, None]
    order = [-1] * parts
    left = set(range(parts))
    for flat in np.argsort(-score, axis=None, kind="stable").tolist():
        member, part = divmod(flat, parts)
        if member in left and order[part] < 0:
            order[part] = int(row[member])
            left.remove(member)
    return order


def _subgroup(request: Request, sharding: HloSharding, kind: Any) -> _Subgroup | None:
    rank = request.shape.rank
    if sharding.kind == kind:
        return _Subgroup(np.arange(request.num_devices).reshape(*(1,) * rank, -1), (kind,), rank, rank)
    dim = sharding.subgroup_dim(kind) if sharding.kind == "tiled" else None
    return None if dim is None else _Subgroup(sharding.tiles.array, sharding.subgroup_types, rank, dim)
