"""Plans via an intermediate sharding that pay more bytes, or more memory, for less time.

Floor: reshard.  For plans where time decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hlosharding.reshard.for_time.gathers import gather_then_cut
from hlosharding.reshard.for_time.search import TimeSearch
from hlosharding.reshard.layout import Layout, layout_of, least_mean_elements
from hlosharding.reshard.matching import MOST_MATCHED, inverse, matched, shared, staying_first
from hlosharding.reshard.objectives import least_seconds
from hlosharding.reshard.planned_steps import Steps
from hlosharding.reshard.steps import AllGather, Permute, Slice
from hlosharding.sharding import HloSharding

_KERNELS = 4
"""That a gather of even tiles saves at best."""


def gather_first(search: TimeSearch) -> Iterator[Steps]:
    """A dim becomes whole, its members copies: uneven tiles cannot always be cut further, and exchanges of gathered
    tiles may be faster than gathers of exchanged ones."""
    reshard = search.reshard
    source, target = reshard.layouts
    is_tiled = reshard.source.kind == "tiled" and source.num_partial_sums == source.num_manual_groups == 1
    if not is_tiled or source.counts == target.counts:
        return
    devices = reshard.source.tiles.array.reshape(*source.counts, -1)
    for dim, ways in enumerate(source.counts):
        if ways > 1:
            moved = np.moveaxis(devices, dim, -1)
            counts = (n if d != dim else 1 for d, n in enumerate(source.counts))
            gathered = HloSharding.partial_tile(moved.reshape(*counts, -1))
            made = layout_of(gathered, reshard.shape.dims, reshard.num_devices)
            gather = AllGather(tuple(map(tuple, moved.reshape(-1, ways).tolist())), dim)
            if _is_worth_gathering(search, gather, made):
                joined = tuple(n * ways if d == dim else n for d, n in enumerate(source.tile))
                cut = (Slice(made.tile),) if joined != made.tile else ()
                yield from ((gather, *cut, *rest) for rest in search.part(gathered, reshard.target))


def _is_worth_gathering(search: TimeSearch, gather: AllGather, made: Layout) -> bool:
    """May a plan that gathers first be faster than the one that is known?  Where tiles are even it saves some kernels
    at best."""
    reshard = search.reshard
    (source, target), shape, machine = reshard.layouts, reshard.shape, reshard.machine
    is_even = not any(size % n for s in (source, target) for size, n in zip(s.dims, s.counts, strict=True))
    received = float(gather.received_bytes(reshard.local, reshard.num_devices).max())
    if is_even and received > _KERNELS * machine.launch * machine.inside.bandwidth:
        return False
    rest = least_mean_elements(made, target) * shape.byte_size / shape.size
    return gather.seconds(reshard.local, machine) + least_seconds(rest, machine) <= search.known_seconds


def cut_last(search: TimeSearch) -> Iterator[Steps]:
    """Copies are cut after all else: more bytes, but the cut then is no kernel of its own."""
    reshard = search.reshard
    (source, target), machine = reshard.layouts, reshard.machine
    if reshard.target.kind != "tiled" or not (source.is_plain and target.is_plain) or source.copies % target.copies:
        return
    times = source.copies // target.copies
    more_bytes = (times - 1) * reshard.shape.with_dims(target.tile).byte_size
    if times == 1 or more_bytes > machine.launch * machine.inside.bandwidth:
        return
    for dim, ways in enumerate(target.counts):
        if ways % times == 0 and target.tile[dim] * ways >= reshard.shape.dims[dim]:
            uncut = _with_fewer_tiles(reshard.target, target, dim, times)
            cut = reshard.part(uncut, reshard.target)
            yield from ((*steps, *cut) for steps in search.part(reshard.source, uncut))


def _with_fewer_tiles(sharding: HloSharding, layout: Layout, dim: int, times: int) -> HloSharding:
    """Each `times` neighbouring tiles along a dim as one, their devices as copies."""
    counts = [n // times if d == dim else n for d, n in enumerate(layout.counts)]
    split = [*counts[: dim + 1], times, *counts[dim + 1 :], layout.copies]
    devices = np.moveaxis(sharding.tiles.array.reshape(split), dim + 1, -2)
    return HloSharding.partial_tile(devices.reshape(*counts, -1))


def reorder_last(search: TimeSearch) -> Iterator[Steps]:
    """Each device makes the target tile of which it holds most; then one permute brings tiles where they belong."""
    reshard = search.reshard
    last, n = reshard.target, reshard.num_devices
    if last.kind != "tiled" or last.is_manual_subgroup() or n > MOST_MATCHED:
        return
    made_for = matched(staying_first(shared(*reshard.layouts)))  # [device]: whose target tile it makes
    made = HloSharding.subgroup(inverse(made_for)[last.tiles.array], last.subgroup_types)
    if made not in (reshard.source, last):
        permute = Permute(tuple(enumerate(made_for)))
        yield (*reshard.part(reshard.source, made), permute)
        to_made = replace(search, reshard=replace(reshard, target=made))
        yield from ((*steps, permute) for steps in gather_then_cut(to_made))


def one_permute(search: TimeSearch) -> Iterator[Steps]:
    """Where only the device order differs: one permute of whole tiles, copies by their number."""
    first, last = search.reshard.source, search.reshard.target
    if not first.kind == last.kind == "tiled" or first.is_manual_subgroup():
        return
    if (first.subgroup_types, first.tiles.dims) == (last.subgroup_types, last.tiles.dims):
        yield (Permute(tuple(sorted(zip(first.tiles.flat, last.tiles.flat, strict=True)))),)
