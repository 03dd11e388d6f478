"""Of a plan with stages, how many layers each of these has best: prices of single layers, and the dynamic program.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hlosharding.cost import Machine
from hlosharding.errors import ScheduleError
from hlosharding.schedule import Pipeline
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan
from hlosharding.search.stages.division import divide_layers
from hlosharding.search.stages.layer_prices import price_layers, price_transfers
from hlosharding.search.stages.run_prices import Numbers, RunPrices, Stage


class DividedPlan(NamedTuple):
    """A plan that says the layers of its stages, and seconds of a step by the prices of these."""

    seconds: float
    plan: Plan


def divide_plan(planner: Planner, plan: Plan, machine: Machine) -> DividedPlan | None:
    """The plan with its best layers; None where it fits with none.

    Raises ScheduleError where the program has fewer layers than the plan has stages, and as `Planner.pipeline` does.
    """
    if 0 < sum(planner.trips) < plan.stages:
        raise ScheduleError(f"{sum(planner.trips)} layers for {plan.stages} stages", remedy="take fewer stages")
    figures, transfers = layer_figures(planner, plan, machine)
    prices = RunPrices.of_layers([plan.data * plan.tensor], **{name: each[None] for name, each in figures.items()})
    memory = min(kind.memory_bytes for kind in machine.parts or (machine,))
    found = divide_layers(prices, devices=plan.num_devices, microbatches=plan.microbatches, memory_bytes=memory)
    if found is None:
        return None
    layers = tuple(stage.stop - stage.first for stage in found.stages)
    said = layers if len(set(layers)) > 1 else ()
    seconds = _add_transfers(found.stages, prices, plan.microbatches, transfers)
    return DividedPlan(seconds, replace(plan, layers=said, even=bool(planner.trips)))


def _add_transfers(stages: Sequence[Stage], prices: RunPrices, microbatches: int, transfers: Numbers) -> float:
    """Seconds of a step.  A microbatch waits for its transfers, and others for it: the last n stages hold n of them,
    and let one through as often as an n-th of what it takes from the first of these stages to the end and back.
    """
    way, pace = prices.times_of(stages, microbatches)
    own = np.array([prices.seconds[option, first, stop - 1] for first, stop, option in stages])
    sent = np.array([transfers[number, stage.first] for number, stage in enumerate(stages)])
    through = np.cumsum((own + sent)[::-1]) - sent[::-1]
    slowest = (through / np.minimum(np.arange(1, len(stages) + 1), microbatches)).max()
    return float(way + sent.sum() + max(pace, (microbatches - 1) * slowest))


def layer_figures(planner: Planner, plan: Plan, machine: Machine) -> tuple[dict[str, Numbers], Numbers]:
    """As of `price_layers` and `price_transfers`, on the devices of the plan's stages.

    Layers are trips of loops over layers, else parts of the step that take equal time.
    """
    count = sum(planner.trips)
    parts = (2, count - 4, 2) if len(planner.trips) == 1 and count > 5 else (1,) * count
    cut = planner.on_one_submesh(plan, parts, machine) if parts else _cut_listed(planner, plan, machine)
    figures = price_layers(cut, plan.microbatches, machine)
    transfers = price_transfers(cut, plan.submeshes, machine)
    if max(parts, default=1) == 1:
        return figures, transfers
    of_trips = {name: _of_trips(figure, parts, name) for name, figure in figures.items()}
    return of_trips, transfers[:, np.minimum(np.arange(count), 1)]


def _of_trips(figure: Numbers, parts: tuple[int, ...], name: str) -> Numbers:
    """Trips of one loop are alike, but for what stands ahead of the first and behind the last.  (Ends have two trips,
    for a loop of one is none and keeps less.)"""
    if name == "scratch":
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
