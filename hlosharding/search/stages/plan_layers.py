"""Of a plan with stages, how many layers each of these has best: prices of single layers, and the dynamic program.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hlosharding.cost import Machine
from hlosharding.errors import ScheduleError
from hlosharding.schedule import Pipeline
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan
from hlosharding.search.stages.division import divide_layers
from hlosharding.search.stages.layer_prices import price_layers
from hlosharding.search.stages.run_prices import Numbers, RunPrices


class DividedPlan(NamedTuple):
    """A plan that says the layers of its stages, and seconds of a step by the prices of these."""

    seconds: float
    plan: Plan


def divide_plan(planner: Planner, plan: Plan, machine: Machine) -> DividedPlan | None:
    """The plan with its best layers; None where it fits with none.

    Raises ScheduleError where the program has fewer layers than the plan has stages, and as `Planner.pipeline` does.
    """
    figures = {name: each[None] for name, each in layer_figures(planner, plan, machine).items()}
    found = divide_layers(
        RunPrices.of_layers([plan.data * plan.tensor], **figures),
        devices=plan.num_devices,
        microbatches=plan.microbatches,
        memory_bytes=min(kind.memory_bytes for kind in machine.parts or (machine,)),
    )
    if found is None:
        return None
    layers = tuple(stage.stop - stage.first for stage in found.stages)
    return DividedPlan(found.seconds, replace(plan, layers=layers, even=bool(planner.trips)))


def layer_figures(planner: Planner, plan: Plan, machine: Machine) -> Mapping[str, Numbers]:
    """[layer] of each figure that `RunPrices.of_layers` takes, on the devices of one of the plan's stages.

    Layers are trips of loops over layers, else parts of the step that take equal time.
    """
    if not planner.trips:
        return price_layers(_cut_listed(planner, plan, machine), plan.microbatches, machine)
    count = sum(planner.trips)
    parts = (2, count - 4, 2) if len(planner.trips) == 1 and count > 5 else (1,) * count
    figures = price_layers(planner.on_one_submesh(plan, parts, machine), plan.microbatches, machine)
    return {name: _of_trips(figure, parts, name) for name, figure in figures.items()}


def _of_trips(figure: Numbers, parts: tuple[int, ...], name: str) -> Numbers:
    """Trips of one part are alike, but for what stands ahead of the first of all and behind the last.  (Ends have two
    trips, for a loop of one is none and keeps less.)"""
    if name == "scratch" or max(parts) == 1:
        return np.repeat(figure, parts)
    first, middle, last = figure
    found = np.full(sum(parts), middle / parts[1])
    found[[0, -1]] = np.maximum(0.0, (first, last) - found[0])
    return found


_LISTED = (16, 8, 4, 2)
"""Parts of a step whose layers are listed: as many as it has ops for."""


def _cut_listed(planner: Planner, plan: Plan, machine: Machine) -> Pipeline:
    refused = ScheduleError(f"no parts for {plan.stages} stages", remedy="take fewer stages")
    for count in _LISTED:
        try:
            if count >= plan.stages:
                return planner.on_one_submesh(plan, (1,) * count, machine)
        except ScheduleError as error:
            refused = error
    raise refused
