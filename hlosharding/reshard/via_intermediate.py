"""Plans via an intermediate sharding, each half of which is planned again.

Floor: reshard.  For pairs that one axis plan does not bring to the bound, or that have no common grid.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hlosharding.reshard.axis_plans import common_grid
from hlosharding.reshard.device_order import in_source_order
from hlosharding.reshard.layout import layout_of
from hlosharding.reshard.objectives import combined, least_seconds
from hlosharding.reshard.planned_steps import PlannedSteps, Steps
from hlosharding.reshard.request import Reshard
from hlosharding.reshard.steps import AllReduce, Keep, Pad, ReduceScatter
from hlosharding.reshard.subgroups import Subgroup
from hlosharding.sharding import HloSharding


def gather_last(reshard: Reshard) -> Iterator[Steps]:
    """Where copies grow and no grid is common: each member of a copy group fetches a part, then they gather."""
    if reshard.target.is_maximal() or _have_grid(reshard, reshard.source, reshard.target):
        return
    subgroup = Subgroup.of(reshard, reshard.target, "replicated")
    source, target = reshard.layouts
    if subgroup is None:
        return
    for dim in subgroup.divisible(reshard.shape.dims):
        sharding, _ = subgroup.scattered(dim, target, source)
        yield reshard.via(sharding)


def reorder_first(reshard: Reshard) -> Iterator[Steps]:
    """Where only the device order hides a common grid: the source's tiles move to the target's order, then go on."""
    first, last = reshard.source, reshard.target
    if first.kind != "tiled" or last.kind != "tiled" or first.tiles.flat == last.tiles.flat:
        return
    if first.is_manual_subgroup() or _have_grid(reshard, first, last):
        return
    reordered = HloSharding.subgroup(np.array(last.tiles.flat).reshape(first.tiles.dims), first.subgroup_types)
    if reordered not in (first, last) and _have_grid(reshard, reordered, last):
        yield reshard.via(reordered)


def reorder_last(reshard: Reshard) -> Iterator[Steps]:
    """The target's tiles in the source's device order, in which there is a grid; then they move to the target's.

    More bytes than a piecewise plan, but few steps: for what would be too many pieces.  Of 24,576 devices as
    [4096,6] and [6,4096] each wants pieces of 683 others.
    """
    first, last = reshard.source, reshard.target
    (source, target), rank = reshard.layouts, reshard.shape.rank
    if not (first.kind == last.kind == "tiled" and source.is_plain and target.is_plain):
        return
    counts = (*source.counts, source.copies), (*target.counts, target.copies)
    made = HloSharding.partial_tile(in_source_order(first.tiles.array.reshape(counts[0]), *counts))
    if made not in (first, last) and common_grid(first, made, rank, reshard.num_devices) is not None:
        yield reshard.via(made)


def _have_grid(reshard: Reshard, source: HloSharding, target: HloSharding) -> bool:
    return common_grid(source, target, reshard.shape.rank, reshard.num_devices) is not None


def reduce_first(reshard: Reshard, best: PlannedSteps | None) -> Iterator[Steps]:
    """Partial sums meet where they are, for all or scattered over a dim, and the whole value moves on.

    Only where that may be cheaper than the `best` plan so far.
    """
    subgroup, kind = Subgroup.of(reshard, reshard.source, "unreduced"), reshard.reduce_kind
    if subgroup is None or kind is None:
        return
    first, made = (AllReduce(subgroup.groups, kind),), subgroup.replicated()
    if _may_win(reshard, first, made, best):
        yield (*first, *reshard.part(made, reshard.target))
    source, target = reshard.layouts
    for dim in subgroup.divisible(reshard.shape.dims):
        made, groups = subgroup.scattered(dim, source, target)
        tile = list(source.tile)
        tile[dim] = layout_of(made, reshard.shape.dims, reshard.num_devices).tile[dim] * len(groups[0])
        padding = (Pad(tuple(tile)),) if tuple(tile) != source.tile else ()
        steps = (*padding, ReduceScatter(dim, groups, kind))
        if _may_win(reshard, steps, made, best):
            yield (*steps, *reshard.part(made, reshard.target))


def _may_win(reshard: Reshard, first: Steps, made: HloSharding, best: PlannedSteps | None) -> bool:
    """May a plan that begins so, and goes on from `made`, cost less than `best`?"""
    if best is None:
        return True
    begun, left = reshard.priced(first), reshard.least_bytes(made)
    seconds = begun.seconds + least_seconds(left, reshard.machine)
    return combined(reshard.objective, begun.mean_bytes + left, seconds) < best.cost(reshard.objective)


def whole_to_partial(reshard: Reshard) -> Iterator[Steps]:
    """One member of each group keeps the value, the others hold the neutral element."""
    subgroup, kind = Subgroup.of(reshard, reshard.target, "unreduced"), reshard.reduce_kind
    if subgroup is None or kind is None:
        return
    _, target = reshard.layouts
    keeps = tuple((target.partial_sum == 0).tolist())
    yield (*reshard.part(reshard.source, subgroup.replicated()), Keep(keeps, kind))
