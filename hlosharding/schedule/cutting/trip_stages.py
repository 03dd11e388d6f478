"""Where stages end in loops over layers: the stage of each trip, so that all take equal time.

Floor: schedule.  What stands ahead of the loops and behind them counts, as where layers are listed: a stage with an
embedding, or with a vocabulary's product, has fewer layers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

from hlosharding.ir import Instruction
from hlosharding.schedule.cutting.microbatched import error_at

Trips = Mapping[Instruction, int]
"""Of loops over layers."""


def stages_of_trips(
    forward: Sequence[Instruction], weights: Mapping[Instruction, float], trips: Trips, layers: Sequence[int]
) -> dict[str, list[int]]:
    """Of each loop, by name, the stages of its trips.  `forward`: ops in the order in which stages take them.
    `weights`: what is balanced, seconds for instance, of all trips together; of ops without one nothing.  `layers`: of
    parts of equal weight how many each stage has.

    Raises ScheduleError where there are loops, and fewer trips than parts.
    """
    _check_enough(trips, sum(layers))
    units = [inst for inst in forward for _ in range(trips.get(inst, 1))]
    starts = _starts([weights.get(inst, 0.0) / trips.get(inst, 1) for inst in units], sum(layers))
    starts = [starts[ahead - 1] for ahead in accumulate(layers[:-1])]
    found: dict[str, list[int]] = {inst.name: [] for inst in trips}
    for place, inst in enumerate(units):
        if inst in trips:
            # As many stages have begun as starts are at this place or before it.
            found[inst.name].append(bisect_left(starts, place + 1))
    return found


def _starts(weights: Sequence[float], parts: int) -> list[int]:
    """Where each part but the first begins: as near to its share as may be, and no part without anything."""
    before, starts = list(accumulate(weights, initial=0.0)), [0]
    for number in range(1, parts):
        places = range(starts[-1] + 1, len(weights) - parts + number + 1)
        ideal = before[-1] * number / parts
        starts.append(min(places, key=lambda place: abs(before[place] - ideal)))
    return starts[1:]


def _check_enough(trips: Trips, parts: int) -> None:
    layers = sum(trips.values())
    if 0 < layers < parts:
        longest = max(trips, key=trips.__getitem__)
        remedy = f"take stages, times chunks a device, up to {layers}; or list the layers"
        raise error_at(longest, f"{layers} layers (%{longest.name}) for {parts} stages", remedy)
