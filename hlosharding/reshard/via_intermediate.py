"""Plans by way of an intermediate sharding: what they cost at least, and those that may be the cheapest.

Floor: reshard.  Halves are planned again, where `intermediates` does not know them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hlosharding.reshard.axis_plans import have_grid
from hlosharding.reshard.intermediates import Intermediate
from hlosharding.reshard.objectives import weigh
from hlosharding.reshard.planned_steps import PlannedSteps, Steps
from hlosharding.reshard.request import Reshard


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
