"""Of a plan with stages, how many layers each of these has best: prices of single layers, and the dynamic program.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hlosharding.cost import Machine, collective_time
from hlosharding.errors import ScheduleError
from hlosharding.schedule import Pipeline
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan
from hlosharding.search.stages.division import divide_layers
from hlosharding.search.stages.layer_prices import FIGURES, SentTiles, price_layers, price_transfers
from hlosharding.search.stages.run_prices import Numbers, RunPrices, Stage


class DividedPlan(NamedTuple):
    """A plan that says the layers of its stages, and seconds of a step by the prices of these."""

    seconds: float
    plan: Plan


def divide_plan(prices: LayerPrices, plan: Plan) -> DividedPlan | None:
    """The plan with its best layers; None where it fits with none.

    Raises ScheduleError where the program has fewer layers than the plan has stages, and as `Planner.pipeline` does.
    """
    figures, transfers = prices.of(plan)
    runs = RunPrices.of_layers([plan.data * plan.tensor], **{name: figures[name][None] for name in FIGURES})
    memory = prices.memory_bytes
    found = divide_layers(runs, devices=plan.num_devices, microbatches=plan.microbatches, memory_bytes=memory)
    if found is None:
        return None
    layers = tuple(stage.stop - stage.first for stage in found.stages)
    said = layers if len(set(layers)) > 1 else ()
    seconds = _add_transfers(found.stages, runs, plan.microbatches, transfers)
    # Layers are trips of loops over layers, or else parts of the step that take equal time.
    return DividedPlan(seconds, replace(plan, layers=said, even=plan.stages > 1 and bool(prices.planner.trips)))


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


class LayerPrices:
    """What layers of a program take on a machine, in its plans.

    Plans of as many tensor ways that give a device as many examples differ in sums over data ways and in updates alone,
    as long as nothing else is split over their data ways: so layers are cut and priced once for all of them, and what
    differs by closed forms.
    """

    def __init__(self, planner: Planner, machine: Machine) -> None:
        self.planner, self.machine = planner, machine
        self._known: dict[tuple[Plan, bool, int], tuple[Plan, dict[str, Numbers], SentTiles]] = {}

    @property
    def memory_bytes(self) -> float:
        """Of the device that has least."""
        return min(kind.memory_bytes for kind in self.machine.parts or (self.machine,))

    def may_hold(self, plan: Plan) -> bool:
        """May a device hold what a plan without stages keeps for its backward pass, by layers that are known?"""
        alike = (known for known in self._known.values() if known[0].tensor == plan.tensor)
        held = [own["held"].sum() * priced.data * priced.microbatches for priced, own, _ in alike]
        return bool(min(held, default=0.0) <= _SLACK * plan.data * plan.microbatches * self.memory_bytes)

    def of(self, plan: Plan) -> tuple[dict[str, Numbers], Numbers]:
        """[layer] of each figure, on the devices of a stage, and [stage, layer] of transfers, as of `price_transfers`.

        Raises ScheduleError where there are too few layers, and as `Planner.pipeline` does.
        """
        alike = self._alike(plan)
        # How many parts listed layers have is known only once they are cut: they are checked below.
        self._check_has_layers(sum(self.planner.trips) or plan.stages, plan)
        if alike not in self._known or self._known[alike][0].data == 1 < plan.data:  # who is alone sums nothing up
            self._known[alike] = plan, *self._price(plan)
        priced, figures, sent = self._known[alike]
        self._check_has_layers(len(sent), plan)
        own = self._on_data_ways(plan, priced, figures) if plan.data != priced.data else figures
        return own, price_transfers(sent, plan.submeshes, self.machine)

    def _alike(self, plan: Plan) -> tuple[Plan, bool, int]:
        """The same of plans whose layers are told from each other's.  Sums between nodes may hide behind products, so
        who has none of them is not told from who does."""
        is_near = plan.data > 1 or 2 * plan.tensor <= self.machine.devices_per_node
        is_told = plan.strategy in _ALIKE and is_near
        stage = replace(plan.stage, data=plan.data // plan.ways["data"]) if is_told else plan.stage
        return stage, is_told, plan.data * plan.microbatches

    def _check_has_layers(self, count: int, plan: Plan) -> None:
        """Raises ScheduleError where stages have none."""
        if count < plan.stages:
            raise ScheduleError(f"{count} layers for {plan.stages} stages", remedy="take fewer stages")

    def _on_data_ways(self, plan: Plan, priced: Plan, figures: dict[str, Numbers]) -> dict[str, Numbers]:
        """Of a plan with other data ways than those that were priced."""
        sums, splits = _ALIKE[plan.strategy]
        share = priced.data / plan.data if splits else 1.0
        whole = figures["summed"] * (priced.data if splits else 1)
        reduced, before = (self._exchange(each, sums, whole) for each in (plan, priced))
        slower = float(self._exchange(plan, sums, _SOME)[0] / (self._exchange(priced, sums, _SOME)[0] or 1.0))
        exchanged = figures["exchanged"]
        terms = figures["summed"] * min(plan.microbatches, 2)
        return {
            **figures,
            "seconds": np.maximum(0.0, figures["seconds"] - before) + reduced,
            "once": share * (figures["once"] - exchanged) + slower * exchanged,
            "kept": figures["kept"] + (share - 1.0) * (figures["updated"] + terms),
        }

    def _exchange(self, plan: Plan, kind: str, nbytes: Numbers) -> Numbers:
        """Seconds over the data ways of a stage."""
        members = [plan.submeshes[0][:: plan.tensor]]
        return np.array([collective_time(kind, each, plan.data, members, self.machine) for each in nbytes])

    def _price(self, plan: Plan) -> tuple[dict[str, Numbers], SentTiles]:
        count = sum(self.planner.trips)
        # Trips are alike, so three parts tell them all (`_of_trips`); of five trips the middle one would have one, and
        # a loop of one is none.
        parts = (2, count - 4, 2) if len(self.planner.trips) == 1 and count > 5 else (1,) * count
        cut = self.planner.on_one_submesh(plan, parts, self.machine) if parts else self._cut_listed(plan)
        figures, sent = price_layers(cut, plan.microbatches, self.machine)
        if max(parts, default=1) == 1:
            return figures, sent
        of_trips = {name: _of_trips(figure, parts, name) for name, figure in figures.items()}
        return of_trips, [sent[min(trip, 1)] for trip in range(count)]

    def _cut_listed(self, plan: Plan) -> Pipeline:
        refused = ScheduleError(f"no parts for {plan.stages} stages", remedy="take fewer stages")
        for count in _LISTED:
            try:
                if count >= plan.stages:
                    return self.planner.on_one_submesh(plan, (1,) * count, self.machine)
            except ScheduleError as error:
                refused = error
        raise refused


_ALIKE = {"": ("all-reduce", False), "zero1": ("reduce-scatter", True)}
"""Strategies that split nothing over data ways that passes read: how gradients are summed, and whether these and
updates are then split."""
_SOME = np.array([1e8])
"""Bytes of a layer's gradients: of some size, to compare links."""
_SLACK = 2.0
"""Layers by themselves hold more than a whole step at its peak, which fuses some of it: of Llama's kind above 1.1."""
_LISTED = (16, 8, 4, 2)
"""Parts of a step whose layers are listed: as many as it has ops for."""


def _of_trips(figure: Numbers, parts: tuple[int, ...], name: str) -> Numbers:
    """Trips of one loop are alike, but for what stands ahead of the first and behind the last.  (Ends have two trips,
    for a loop of one is none and keeps less.)"""
    if name == "scratch":
        return np.repeat(figure, parts)
    first, middle, last = figure
    found = np.full(sum(parts), middle / parts[1])
    found[[0, -1]] = np.maximum(0.0, (first, last) - found[0])
    return found
