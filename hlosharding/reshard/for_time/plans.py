"""All plans that only objective "time" tries, and the fastest of those found.

Floor: reshard.  For plans where time decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hlosharding.reshard.for_time.gathers import gather_then_cut, reorder_then_gather
from hlosharding.reshard.for_time.intermediate import cut_last, gather_first, one_permute, reorder_last
from hlosharding.reshard.for_time.program_time import emitted_seconds
from hlosharding.reshard.for_time.search import NEAR, TimeSearch, is_close_look
from hlosharding.reshard.for_time.source_order import exchange_and_reorder
from hlosharding.reshard.planned_steps import PlannedSteps, Steps
from hlosharding.reshard.request import Reshard

_FEW = 5
"""Plans that are priced as programs."""


def plans_for_time(reshard: Reshard, known: Iterable[PlannedSteps]) -> Iterator[Steps]:
    """Plans in more bytes, or more steps, that may be faster than those known."""
    fitting = [plan for plan in known if plan.fits(reshard.memory_limit)]
    search = TimeSearch(reshard)
    search = replace(search, known_seconds=min((search.seconds(plan.steps) for plan in fitting), default=math.inf))
    yield from reorder_last(search)
    yield from one_permute(search)
    yield from reorder_then_gather(search)
    yield from gather_then_cut(search)
    if is_close_look(reshard) or not math.isfinite(search.known_seconds):
        yield from gather_first(search)
    if is_close_look(reshard):
        yield from cut_last(search)
        yield from exchange_and_reorder(search)


def fastest(reshard: Reshard, found: list[PlannedSteps]) -> list[PlannedSteps]:
    """Those that may be the fastest, priced as programs; or where that takes long the likeliest one."""
    search = TimeSearch(reshard)
    estimated = [replace(plan, seconds=search.seconds(plan.steps)) for plan in found]
    order = sorted(estimated, key=lambda plan: (plan.seconds, len(plan.steps)))
    if not is_close_look(reshard):
        return order[:1]
    return [_as_program(reshard, plan) for plan in order[:_FEW] if plan.seconds <= NEAR * order[0].seconds]


def _as_program(reshard: Reshard, plan: PlannedSteps) -> PlannedSteps:
    """The same steps, priced op by op."""
    if not plan.mean_bytes:
        return plan
    seconds = emitted_seconds(plan.steps, reshard.local, reshard.num_devices, reshard.machine)
    return replace(plan, seconds=seconds)
