"""The shardings by which a plan may go: made of the source's tiles, or needing little to become the target.

Floor: reshard.  What makes them knows no objective; what plans by way of them cost stands at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from hlosharding.reshard.axis_plans import have_grid
from hlosharding.reshard.layout import Dims, Layout, Table, layout_of
from hlosharding.reshard.objectives import weigh
from hlosharding.reshard.request import PlannedSteps, Reshard, Steps
from hlosharding.reshard.steps import AllGather, AllReduce, Keep, Pad, Permute, ReduceScatter, Slice
from hlosharding.reshard.subgroups import MOST_MATCHED, Subgroup, count_shared, match_rows, staying_first, unlike_dims
from hlosharding.sharding import HloSharding, prime_factors


@dataclass(frozen=True, slots=True)
class Intermediate:
    """A sharding between source and target."""

    sharding: HloSharding
    first: Steps | None = None
    """From the source to it; None: not planned yet."""
    last: Steps | None = None
    """From it to the target; likewise."""


# Made of the source's tiles


def reduce_source(reshard: Reshard) -> Iterator[Intermediate]:
    """Partial sums meet where they are, for all or scattered over a dim, and the whole value moves on."""
    subgroup, kind = Subgroup.of(reshard, reshard.source, "unreduced"), reshard.reduce_kind
    if subgroup is None or kind is None:
        return
    yield Intermediate(subgroup.replicate_members(), (AllReduce(subgroup.groups, kind),))
    source, target = reshard.layouts
    for dim in unlike_dims(reshard, subgroup):
        made, groups = subgroup.scatter(dim, source, target)
        tile = list(source.tile)
        tile[dim] = layout_of(made, reshard.shape.dims, reshard.num_devices).tile[dim] * len(groups[0])
        # A reduce-scatter cuts what it adds up into equal parts.
        padding = (Pad(tuple(tile)),) if tuple(tile) != source.tile else ()
        yield Intermediate(made, (*padding, ReduceScatter(groups, dim, kind)))


def reorder_source(reshard: Reshard) -> Iterator[Intermediate]:
    """Where only the device order hides a common grid: the source's tiles move to the target's order, then go on."""
    first, last = reshard.source, reshard.target
    if first.kind != "tiled" or last.kind != "tiled" or first.tiles.flat == last.tiles.flat:
        return
    # In another order of devices tiles would go from one manual group to another.
    if first.is_manual_subgroup():
        return
    reordered = HloSharding.subgroup(np.array(last.tiles.flat).reshape(first.tiles.dims), first.subgroup_types)
    if reordered not in (first, last) and have_grid(reshard, reordered, last):
        yield Intermediate(reordered)


def permute_source(reshard: Reshard) -> Iterator[Steps]:
    """Where only the device order differs: one permute of whole tiles, copies by their number."""
    first, last = reshard.source, reshard.target
    if not first.kind == last.kind == "tiled" or first.is_manual_subgroup():
        return
    if (first.subgroup_types, first.tiles.dims) == (last.subgroup_types, last.tiles.dims):
        yield (Permute(tuple(sorted(zip(first.tiles.flat, last.tiles.flat, strict=True)))),)


def gather_source(reshard: Reshard) -> Iterator[Intermediate]:
    """A dim becomes whole, its members copies: uneven tiles cannot always be cut further, and exchanges of gathered
    tiles may be faster than gathers of exchanged ones."""
    source, target = reshard.layouts
    is_tiled = reshard.source.kind == "tiled" and source.num_partial_sums == source.num_manual_groups == 1
    if not is_tiled or source.counts == target.counts:
        return
    devices = reshard.source.tiles.array.reshape(*source.counts, -1)
    for dim, ways in enumerate(source.counts):
        if ways > 1:
            moved = np.moveaxis(devices, dim, -1)
            counts = (n if d != dim else 1 for d, n in enumerate(source.counts))
            made = HloSharding.partial_tile(moved.reshape(*counts, -1))
            gathered = tuple(n * ways if d == dim else n for d, n in enumerate(source.tile))
            tile = layout_of(made, reshard.shape.dims, reshard.num_devices).tile
            # Tiles that are rounded up hang over the end when they are gathered.
            cut = (Slice(tile),) if gathered != tile else ()
            yield Intermediate(made, (AllGather(tuple(map(tuple, moved.reshape(-1, ways).tolist())), dim), *cut))


# Little from the target


def split_copies(reshard: Reshard) -> Iterator[Intermediate]:
    """Where copies grow: each member of a copy group fetches a part, then they gather."""
    subgroup = Subgroup.of(reshard, reshard.target, "replicated")
    source, target = reshard.layouts
    if subgroup is None:
        return
    for dim in unlike_dims(reshard, subgroup):
        yield Intermediate(subgroup.scatter(dim, target, source)[0])


def keep_source_order(reshard: Reshard) -> Iterator[Intermediate]:
    """The target's tiles in the source's device order, in which there is a grid; then they move to the target's.

    More bytes than a piecewise plan, but few steps: for what would be too many pieces.  Of 24,576 devices as
    [4096,6] and [6,4096] each wants pieces of 683 others.
    """
    first, last, (source, target) = reshard.source, reshard.target, reshard.layouts
    if first.kind == last.kind == "tiled" and source.is_plain and target.is_plain:
        counts = (*source.counts, source.copies), (*target.counts, target.copies)
        yield Intermediate(HloSharding.partial_tile(in_source_order(first.tiles.array, *counts)))


def make_where_held(reshard: Reshard) -> Iterator[Intermediate]:
    """Each device makes the target tile of which it holds most; then one permute brings tiles where they belong."""
    last = reshard.target
    if last.kind != "tiled" or last.is_manual_subgroup() or reshard.num_devices > MOST_MATCHED:
        return
    made_for = match_rows(staying_first(count_shared(*reshard.layouts)))  # [device]: whose target tile it makes
    made_by = np.argsort(made_for)  # [device]: who makes its target tile
    made = HloSharding.subgroup(made_by[last.tiles.array], last.subgroup_types)
    if made not in (reshard.source, last):
        yield Intermediate(made, last=(Permute(tuple(enumerate(made_for))),))


def merge_tiles(reshard: Reshard) -> Iterator[Intermediate]:
    """Copies are cut after all else: more bytes, but the cut then is no kernel of its own."""
    (source, target), machine = reshard.layouts, reshard.machine
    if reshard.target.kind != "tiled" or not (source.is_plain and target.is_plain) or source.copies % target.copies:
        return
    times = source.copies // target.copies
    more_bytes = (times - 1) * reshard.shape.with_dims(target.tile).byte_size
    # What is saved is the launch of one kernel: bytes that take longer than that cannot pay.
    if times == 1 or more_bytes > machine.launch * machine.inside.bandwidth:
        return
    for dim, ways in enumerate(target.counts):
        if ways % times == 0:
            uncut = _with_fewer_tiles(reshard.target, target, dim, times)
            yield Intermediate(uncut, last=reshard.part(uncut, reshard.target))


def _with_fewer_tiles(sharding: HloSharding, layout: Layout, dim: int, times: int) -> HloSharding:
    """Each `times` neighbouring tiles along a dim as one, their devices as copies."""
    counts = [n // times if d == dim else n for d, n in enumerate(layout.counts)]
    split = [*counts[: dim + 1], times, *counts[dim + 1 :], layout.copies]
    devices = np.moveaxis(sharding.tiles.array.reshape(split), dim + 1, -2)
    return HloSharding.partial_tile(devices.reshape(*counts, -1))


def keep_whole(reshard: Reshard) -> Iterator[Intermediate]:
    """To partial sums: one member of each group keeps the value, the others hold the neutral element."""
    subgroup, kind = Subgroup.of(reshard, reshard.target, "unreduced"), reshard.reduce_kind
    if subgroup is not None and kind is not None:
        keeps = tuple((reshard.layouts[1].partial_sum == 0).tolist())
        yield Intermediate(subgroup.replicate_members(), last=(Keep(keeps, kind),))


# ---- the devices of a tile assignment put into other tile counts, so that as much as can stays where it is
#
# Knows device ids and counts.


def in_source_order(devices: Table, have: Dims, want: Dims) -> Table:
    """The source's devices as an array of the target's counts; the last count is that of the copies.

    Of each dim what can stay stays, as its major part; the rest is free, prime by prime, for the dims that want more.
    From [4,2] to [2,4]: of the four along dim 0 two stay and two are free, which go behind the two of dim 1.

        devices [4,2]  as  [2 stay, 2 free | 2 stay]  ->  [2 | 2, 2 of dim 0]  as  [2,4]

    >>> in_source_order(np.arange(8).reshape(4, 2), (4, 2, 1), (2, 4, 1))[..., 0].tolist()
    [[0, 2, 1, 3], [4, 6, 5, 7]]
    """
    stays = np.gcd(have, want).tolist()
    sizes: list[int] = []
    order: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (prime, its place in `sizes`)
    for count, kept in zip(have, stays, strict=True):
        order.append([len(sizes)])
        sizes.append(kept)
        for prime in prime_factors(count // kept):
            free.append((prime, len(sizes)))
            sizes.append(prime)
    # Copies first: they are cut, which makes smaller what else must move.
    free.sort(key=lambda one: one[1] < order[-1][0])
    for places, count, kept in zip(order, want, stays, strict=True):
        for prime in prime_factors(count // kept):
            # There is one: both counts multiply up to the number of devices.
            taken = next(one for one in free if one[0] == prime)
            free.remove(taken)
            places.append(taken[1])
    return devices.reshape(sizes).transpose([place for places in order for place in places]).reshape(want)


# ---- plans by way of an intermediate sharding: what they cost at least, and those that may be the cheapest
#
# Halves are planned again, where `intermediates` does not know them.


def plans_via(reshard: Reshard, ways: Iterable[Intermediate], best: PlannedSteps | None) -> Iterator[Steps]:
    """Plans whose least cost is below that of the `best` so far, which fits the memory; the most promising first."""
    is_timed = reshard.objective == "time"
    least = [(least_cost(reshard, way), way) for way in ways]
    for cost, way in least if is_timed else sorted(least, key=lambda one: one[0]):
        if best is not None and cost >= best.cost(reshard.objective):
            continue
        steps = plan_via(reshard, way)
        yield steps
        # Where time decides plans are priced as programs: those whose steps look dearer may be faster.
        if not is_timed:
            found = reshard.price(steps)
            if found.fits(reshard.memory_limit):
                best = found if best is None else min(best, found, key=lambda plan: plan.cost(reshard.objective))


def plan_via(reshard: Reshard, way: Intermediate) -> Steps:
    """The plan by way of a sharding."""
    first = reshard.part(reshard.source, way.sharding) if way.first is None else way.first
    last = reshard.part(way.sharding, reshard.target) if way.last is None else way.last
    return (*first, *last)


def least_cost(reshard: Reshard, way: Intermediate) -> float:
    """What a plan by way of it costs at least, whose second half is not planned yet."""
    if way.first is None:
        # A part goes by no intermediate sharding: without a grid, in pieces.
        in_pieces = not have_grid(reshard, reshard.source, way.sharding)
        nbytes, seconds = reshard.least(target=way.sharding, in_pieces=in_pieces)
    else:
        begun = reshard.price(way.first)
        nbytes, seconds = begun.mean_bytes, begun.seconds
    more_bytes, more_seconds = reshard.least(source=way.sharding)
    return weigh(reshard.objective, nbytes + more_bytes, seconds + more_seconds)
