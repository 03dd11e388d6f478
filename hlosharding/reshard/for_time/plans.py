"""All plans that only objective "time" tries, and the fastest of those found.

Floor: reshard.  For plans where time decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hlosharding.reshard.for_time.gathers import exchange_and_reorder, gather_then_cut, reorder_then_gather
from hlosharding.reshard.for_time.search import NEAR, TimeSearch, emitted_seconds, is_close_look
from hlosharding.reshard.intermediates import (
    Intermediate,
    gather_source,
    least_cost,
    make_where_held,
    merge_tiles,
    permute_source,
    plan_via,
)
from hlosharding.reshard.objectives import MARGIN, weigh
from hlosharding.reshard.request import PlannedSteps, Reshard, Steps

_FEW = 5
"""Plans that are priced as programs.  Of two, 3 plans are slower (at most 1.06); of ten, none is faster."""
_KERNELS = 4
"""That a gather of even tiles saves at best."""


def plans_for_time(reshard: Reshard, known: Iterable[PlannedSteps]) -> Iterator[Steps]:
    """Plans in more bytes, or more steps, that may be faster than those known."""
    fitting = [plan for plan in known if plan.fits(reshard.memory_limit)]
    search = TimeSearch(reshard)
    search = replace(search, known_seconds=min((search.seconds(plan.steps) for plan in fitting), default=math.inf))
    for way in make_where_held(reshard):
        yield plan_via(reshard, way)
        to_made = replace(search, reshard=replace(reshard, target=way.sharding))
        yield from ((*steps, *(way.last or ())) for steps in gather_then_cut(to_made))
    yield from permute_source(reshard)
    yield from reorder_then_gather(search)
    yield from gather_then_cut(search)
    if is_close_look(reshard) or not math.isfinite(search.known_seconds):
        yield from search.plans_via(way for way in gather_source(reshard) if _is_worth_gathering(search, way))
    if is_close_look(reshard):
        yield from search.plans_via(merge_tiles(reshard))
        yield from exchange_and_reorder(search)


def _is_worth_gathering(search: TimeSearch, way: Intermediate) -> bool:
    """May a plan that gathers first be faster than the one that is known?  Where tiles are even it saves some kernels
    at best."""
    reshard, machine = search.reshard, search.reshard.machine
    is_even = not any(size % n for s in reshard.layouts for size, n in zip(s.dims, s.counts, strict=True))
    received = reshard.price(way.first or ()).mean_bytes
    if is_even and received > _KERNELS * machine.launch * machine.inside.bandwidth:
        return False
    return least_cost(reshard, way) <= weigh("time", 0.0, search.known_seconds)


def fastest(reshard: Reshard, found: list[PlannedSteps]) -> list[PlannedSteps]:
    """Those that may be the fastest, priced as programs; or where that takes long the likeliest one.

    None whose collectives alone take longer than another's program.
    """
    search = TimeSearch(reshard)
    estimated = [replace(plan, seconds=search.seconds(plan.steps)) for plan in found]
    order = sorted(estimated, key=lambda plan: (plan.seconds, len(plan.steps)))
    if not is_close_look(reshard):
        return order[:1]
    priced, least = list[PlannedSteps](), math.inf
    for plan in order[:_FEW]:
        # Of 533 plans that a pipeline of Llama 8B on 64 H100s wrote as programs 304 could not win by their collectives
        # alone: 6 % of its time.
        if plan.seconds <= NEAR * order[0].seconds and search.wire_seconds(plan.steps) <= (1 + MARGIN) * least:
            priced.append(_as_program(reshard, plan))
            least = min(least, priced[-1].seconds)
    return priced


def _as_program(reshard: Reshard, plan: PlannedSteps) -> PlannedSteps:
    """The same steps, priced op by op."""
    if not plan.mean_bytes:
        return plan
    seconds = emitted_seconds(plan.steps, reshard.local, reshard.num_devices, reshard.machine)
    return replace(plan, seconds=seconds)
