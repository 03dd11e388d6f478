"""What a step takes with many plans and batch sizes.  Of those that differ in the size of a microbatch, few are cut.

Floor: search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from itertools import chain

from hlosharding.collector import collector_comes_after
from hlosharding.cost import Machine
from hlosharding.errors import HloShardingError
from hlosharding.schedule import Pipeline, PipelineRuns, ResizablePipeline, ScheduleSimulation, Sized
from hlosharding.search.batch_sizes import BatchSizes
from hlosharding.search.plans import SizedPlan


class PlanPrices:
    """Prices plans.  `plans`: all that may be asked for, those of a family one after the other: of one that was left
    nothing is kept."""

    def __init__(self, sizes: BatchSizes, plans: Iterable[SizedPlan], machine: Machine) -> None:
        self.sizes, self.machine = sizes, machine
        self._runs = PipelineRuns(machine)
        self.expect(plans)

    def expect(self, plans: Iterable[SizedPlan]) -> None:
        """From now on these are all that may be asked for."""
        self._members = group_by_family(plans)
        self._last: tuple[object, _Family] | None = None

    # Else a search collects again and again what it still holds: of 78.9 CPU seconds for DeepSeek 16B that was 10.3.
    @collector_comes_after
    def simulate(self, wanted: SizedPlan) -> ScheduleSimulation:
        """A step, as its own cut runs it.  Raises ScheduleError where it cannot be cut so."""
        key, plan = family_of(wanted), wanted.plan
        if self._last is None or self._last[0] != key:
            self._last = key, _Family(self._members[key], self.cut)
        return self._runs.simulate(self._last[1].pipeline_of(wanted), plan.schedule, plan.microbatches)

    def cut(self, wanted: SizedPlan) -> Pipeline:
        """The pipeline as it will run."""
        return self.sizes.planner(wanted.batch_size).pipeline(wanted.plan, self.machine)


def family_of(wanted: SizedPlan) -> object:
    """The same of all that differ in the size of a microbatch alone.  One microbatch is cut otherwise than several."""
    plan = wanted.plan
    divides = plan.divides(wanted.batch_size)
    # A plan that does not divide its batch is a family of its own: it cannot be cut, and is no sample for others.
    return plan.stage, plan.layout, tuple(plan.submeshes), plan.microbatches == 1, divides or wanted


def sort_by_family(plans: Iterable[SizedPlan]) -> list[SizedPlan]:
    """The same, each family where its first one is."""
    return list(chain.from_iterable(group_by_family(plans).values()))


def group_by_family(plans: Iterable[SizedPlan]) -> dict[object, list[SizedPlan]]:
    """By family, those first whose first plan comes first."""
    found: defaultdict[object, list[SizedPlan]] = defaultdict(list)
    for each in plans:
        found[family_of(each)].append(each)
    return found


class _Family:
    """Pipelines for microbatches of several sizes: the smallest and the largest are cut, and where these are not alike
    one between, and so on."""

    def __init__(self, members: Iterable[SizedPlan], cut: Callable[[SizedPlan], Pipeline]) -> None:
        self.members, self.cut = list(members), cut
        self.sizes = sorted({member.examples for member in self.members})
        """Examples of a microbatch, in rising order."""
        self._sample, self._between = cache(self._cut_sample), cache(self._resizable)

    def pipeline_of(self, wanted: SizedPlan) -> Pipeline:
        """The pipeline, perhaps known by its price alone."""
        low, high, place = 0, len(self.sizes) - 1, self.sizes.index(wanted.examples)
        # They are cut in any case, so their price is that of their own cut.
        if place in (low, high) and self._choose_member(wanted.examples) == wanted:
            return self._sample(wanted.examples).pipeline
        while True:
            found = self._between(self.sizes[low], self.sizes[high])
            with suppress(HloShardingError):  # no size between these two that it can have
                if found is not None:
                    return found.pipeline_for(wanted.examples // wanted.plan.batch_ways, wanted.plan.microbatches)
            if high - low < 2:
                return self.cut(wanted)
            middle = (low + high) // 2
            low, high = (low, middle) if place <= middle else (middle, high)

    def _resizable(self, low: int, high: int) -> ResizablePipeline | None:
        with suppress(HloShardingError):
            return ResizablePipeline(self._sample(low), self._sample(high), self.members[0].plan.tensor)

    def _cut_sample(self, size: int) -> Sized:
        chosen = self._choose_member(size)
        return Sized(self.cut(chosen), size // chosen.plan.batch_ways, chosen.plan.microbatches)

    def _choose_member(self, size: int) -> SizedPlan:
        """Who of that size is cut."""
        ends = {pick(member.batch_size for member in self.members) for pick in (min, max)}
        of_size = [member for member in self.members if member.examples == size]
        return min(of_size, key=lambda member: (member.batch_size not in ends, member))
