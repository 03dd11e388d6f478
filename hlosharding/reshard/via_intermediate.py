"""Plans via an intermediate sharding, each half of which is planned again, those that promise most first.

Floor: reshard.  For pairs that one axis plan does not bring to the bound, or that have no common grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from hlosharding.reshard.axis_plans import common_grid
from hlosharding.reshard.device_order import in_source_order
from hlosharding.reshard.layout import layout_of
from hlosharding.reshard.objectives import combined
from hlosharding.reshard.planned_steps import PlannedSteps, Steps
from hlosharding.reshard.request import Reshard
from hlosharding.reshard.steps import AllReduce, Keep, Pad, ReduceScatter
from hlosharding.reshard.subgroups import Subgroup
from hlosharding.sharding import HloSharding, partial_sum_groups


class _Way(NamedTuple):
    """A plan that is not made yet."""

    least: float
    """What it costs at least."""
    steps: Callable[[], Steps]


def _cheapest_first(reshard: Reshard, ways: Iterable[_Way], best: PlannedSteps | None) -> Iterator[Steps]:
    """Plans whose least cost is below that of the `best` so far, which fits the memory."""
    is_timed = reshard.objective == "time"
    for way in ways if is_timed else sorted(ways, key=lambda way: way.least):
        if best is not None and way.least >= best.cost(reshard.objective):
            continue
        steps = way.steps()
        yield steps
        if not is_timed:
            found = reshard.priced(steps)
            if found.fits(reshard.memory_limit):
                best = found if best is None else min(best, found, key=lambda plan: plan.cost(reshard.objective))


def in_two(reshard: Reshard, best: PlannedSteps | None) -> Iterator[Steps]:
    """Where no grid is common: a part is fetched and the rest gathered, or tiles move to the target's order first.

    Only what may be cheaper than the `best` plan so far.
    """
    if _have_grid(reshard, reshard.source, reshard.target):
        return
    # Where time decides, plans are priced as programs.
    known = best if reshard.objective != "time" else None
    yield from _cheapest_first(reshard, (*_gather_last(reshard), *_reorder_first(reshard)), known)


def _gather_last(reshard: Reshard) -> Iterator[_Way]:
    """Where copies grow: each member of a copy group fetches a part, then they gather."""
    subgroup = Subgroup.of(reshard, reshard.target, "replicated")
    source, target = reshard.layouts
    if subgroup is None or reshard.target.is_maximal():
        return
    for dim in _unlike(reshard, subgroup.divisible(reshard.shape.dims)):
        yield _by(reshard, subgroup.scattered(dim, target, source)[0])


def _by(reshard: Reshard, made: HloSharding) -> _Way:
    # A part goes by no intermediate sharding: without a grid, in pieces.
    in_pieces = not _have_grid(reshard, reshard.source, made)
    parts = zip(reshard.least(target=made, in_pieces=in_pieces), reshard.least(source=made), strict=True)
    return _Way(combined(reshard.objective, *map(sum, parts)), lambda: reshard.via(made))


def _reorder_first(reshard: Reshard) -> Iterator[_Way]:
    """Where only the device order hides a common grid: the source's tiles move to the target's order, then go on."""
    first, last = reshard.source, reshard.target
    if first.kind != "tiled" or last.kind != "tiled" or first.tiles.flat == last.tiles.flat:
        return
    if first.is_manual_subgroup():
        return
    reordered = HloSharding.subgroup(np.array(last.tiles.flat).reshape(first.tiles.dims), first.subgroup_types)
    if reordered not in (first, last) and _have_grid(reshard, reordered, last):
        yield _by(reshard, reordered)


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
    begins = [(subgroup.replicated(), (AllReduce(subgroup.groups, kind),)), *_scattered(reshard, subgroup, kind)]
    yield from _cheapest_first(reshard, [_begun(reshard, made, first) for made, first in begins], best)


def _scattered(reshard: Reshard, subgroup: Subgroup, kind: str) -> Iterator[tuple[HloSharding, Steps]]:
    """(what is made, the steps to it) where partial sums meet scattered over a dim."""
    source, target = reshard.layouts
    for dim in _unlike(reshard, subgroup.divisible(reshard.shape.dims)):
        made, groups = subgroup.scattered(dim, source, target)
        tile = list(source.tile)
        tile[dim] = layout_of(made, reshard.shape.dims, reshard.num_devices).tile[dim] * len(groups[0])
        padding = (Pad(tuple(tile)),) if tuple(tile) != source.tile else ()
        yield made, (*padding, ReduceScatter(groups, dim, kind))


def _unlike(reshard: Reshard, dims: Iterable[int]) -> Iterator[int]:
    """Of dims that neither sharding splits, and all devices split evenly, only the first: plans cost the same."""
    source, target = reshard.layouts
    is_first = True
    for dim in dims:
        is_free = source.counts[dim] == target.counts[dim] == 1 and reshard.shape.dims[dim] % reshard.num_devices == 0
        if is_first or not is_free:
            yield dim
        is_first = is_first and not is_free


def _begun(reshard: Reshard, made: HloSharding, first: Steps) -> _Way:
    begun, (nbytes, seconds) = reshard.priced(first), reshard.least(source=made)
    least = combined(reshard.objective, begun.mean_bytes + nbytes, begun.seconds + seconds)
    return _Way(least, lambda: (*first, *reshard.part(made, reshard.target)))


def whole_to_partial(reshard: Reshard) -> Iterator[Steps]:
    """One member of each group keeps the value, the others hold the neutral element."""
    subgroup, kind = Subgroup.of(reshard, reshard.target, "unreduced"), reshard.reduce_kind
    if subgroup is None or kind is None:
        return
    _, target = reshard.layouts
    keeps = tuple((target.partial_sum == 0).tolist())
    yield (*reshard.part(reshard.source, subgroup.replicated()), Keep(keeps, kind))


def more_partial_sums(reshard: Reshard) -> Iterator[Steps]:
    """Of copies of partial sums one stays, the others become neutral elements: nothing moves."""
    kind, (source, target) = reshard.reduce_kind, reshard.layouts
    if kind is None or (source.index != target.index).any():
        return
    before, after = (partial_sum_groups(end, reshard.num_devices) for end in (reshard.source, reshard.target))
    adds_to = {device: group for group in before for device in group}
    kept = [adds_to[group[0]] for group in after]
    if all(set(one) <= set(group) for one, group in zip(kept, after, strict=True)):
        keepers = {device for group in kept for device in group}
        yield (Keep(tuple(device in keepers for device in range(reshard.num_devices)), kind),)
