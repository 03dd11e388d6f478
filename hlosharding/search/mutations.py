"""A plan made better by changes of one argument at a time: a sharding is set, propagated, priced by simulation, and
kept where the step takes less.

Floor: search.  Greedy and deterministic; the plan's ways stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hlosharding.cost import Machine
from hlosharding.errors import HloShardingError, ShardingError
from hlosharding.ir import Instruction, Module
from hlosharding.notebook import InNotebooks
from hlosharding.progress import Progress, counting
from hlosharding.schedule import PipelineRuns, Schedule
from hlosharding.search.candidates import shardings_of
from hlosharding.search.comparison import time_text
from hlosharding.search.in_turn import improve_in_turn, is_better, largest_first
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan, SizedPlan
from hlosharding.search.priced_plan import PricedPlan
from hlosharding.search.strategies import (
    BATCH,
    Specs,
    Strategy,
    Ways,
    axes_of,
    mesh_of,
    number_specs,
    propagate_shardings,
    spec_of,
    split_arguments,
    sum_as,
)

NAME = "improved"
"""Of the strategy that comes of it."""


@dataclass(frozen=True, slots=True)
class SpecChange:
    """Another sharding of an argument, and what a step takes before and with it."""

    argument: str
    before: Any
    """A PartitionSpec; None: what suits."""
    after: Any
    time_before_s: float
    time_s: float

    def __str__(self) -> str:
        times = f"{time_text(self.time_before_s)} -> {time_text(self.time_s)}"
        return f"{self.argument} {spec_text(self.before)} -> {spec_text(self.after)}: {times}"


def spec_text(spec: Any) -> str:
    """A PartitionSpec as one writes it; None is none.

    >>> spec_text((None, "tensor")), spec_text(("data",)), spec_text(None)
    ("P(None, 'tensor')", "P('data')", 'what suits')
    """
    return "what suits" if spec is None else f"P({', '.join(map(repr, spec))})"


@dataclass(frozen=True)
class Improved(InNotebooks):
    """A plan with a strategy of its own, found from that of another one.  `SearchResult.improved` has an example."""

    planner: Planner
    """Knows the strategy, as "improved"."""
    machine: Machine
    start: PricedPlan
    priced: PricedPlan
    specs: Mapping[str, Any]
    """By argument."""
    changes: tuple[SpecChange, ...]
    """Those that were kept, in order."""
    tried: int
    """Strategies that were priced."""
    is_done: bool
    """Would no other change of one argument help?  Else the steps were used up."""

    @property
    def plan(self) -> Plan:
        """The start's ways, by the strategy that was found."""
        return self.priced.plan

    @property
    def strategy(self) -> Strategy:
        """What `hs.search(strategies=)` takes."""
        return self.planner.find_strategy(NAME)

    @cached_property
    def schedule(self) -> Schedule:
        """Ready to be run."""
        return self.planner.schedule(self.plan, self.machine)

    def __str__(self) -> str:
        end = "no other change of one argument helps" if self.is_done else "the steps are used up"
        times = f"{time_text(self.start.time_s)} -> {time_text(self.priced.time_s)}"
        head = f"{self.start.plan} on {self.machine.name}: {times}; {self.tried} tried, {end}"
        return "\n".join([head, *map(str, self.changes)])


def improve_plan(
    planner_of: Callable[[int], Planner],
    starts: Sequence[SizedPlan],
    machine: Machine,
    steps: int,
    progress: Progress | bool = True,
) -> Improved:
    """Change the strategy of each plan as long as that helps, or until `steps` strategies were priced: the best end.

    `planner_of`: for batches of a size.
    """
    with counting("improving a plan", progress) as told:
        found = [_Climb(planner_of(start.batch_size), start, machine, steps, told).run() for start in starts]
    return min(found, key=lambda end: (not end.priced.fits, end.priced.time_s))


class _Climb:
    def __init__(self, planner: Planner, start: SizedPlan, machine: Machine, steps: int, progress: Progress) -> None:
        self.planner, self.sized, self.machine, self.steps, self.progress = planner, start, machine, steps, progress
        self.module: Module = planner.module
        self.parameters = {p.parameter_number: p for p in self.module.entry.parameters}
        self.ways: Ways = start.plan.ways
        self.runs = PipelineRuns(machine)
        self.changes: list[SpecChange] = []
        self.known: dict[object, PricedPlan | None] = {}
        """Strategies that were priced."""
        # Of the batch, too, the strategy has the last word: specs of one argument overwrite each other below.
        strategies = BATCH, planner.find_strategy(start.plan.strategy)
        said = (number_specs(self.module, each(self.module, self.ways, planner.numbers)) for each in strategies)
        self.specs = {number: _normalize(spec) for each in said for number, spec in each.items()}
        self.start = self._price(self.specs, start.plan)
        self.best = replace(self.start, plan=replace(start.plan, strategy=NAME))

    def run(self) -> Improved:
        """Go round the arguments, the largest first, until none changes, or the steps are used up."""
        arrays = [p for p in self.module.entry.parameters if p.shape.is_array and p.shape.rank]
        is_done = improve_in_turn(largest_first(arrays), self._improve, lambda: len(self.known) < self.steps)
        specs = {self.parameters[number].path: spec for number, spec in self.specs.items()}
        known = self.planner.with_strategy(NAME, self._strategy_of(specs))
        return Improved(
            known, self.machine, self.start, self.best, specs, tuple(self.changes), len(self.known), is_done
        )

    def _improve(self, parameter: Instruction) -> bool:
        """Take the best other sharding of an argument, if it is better."""
        number, before = parameter.parameter_number, self.best
        was, chosen = self.specs.get(number), self.specs
        for spec in list(self._other_specs(parameter)):
            trial = {n: each for n, each in {**self.specs, number: spec}.items() if each is not None}
            found = self._try_price(trial)
            if found is not None and is_better(found.promise, self.best.promise):
                self.best, chosen = found, trial
        if chosen is self.specs:
            return False
        self.specs = chosen
        self.changes.append(SpecChange(parameter.path, was, chosen.get(number), before.time_s, self.best.time_s))
        return True

    def _other_specs(self, parameter: Instruction) -> Iterator[Any]:
        """Specs that an argument has not: none, those that its readers would give it, those by the ways."""
        mesh, was = mesh_of(self.ways), self.specs.get(parameter.parameter_number)
        found: dict[Any, None] = {None: None}
        shardings = propagate_shardings(split_arguments(self.module, self.ways, self.specs))
        for sharding in shardings_of(parameter, shardings, mesh):
            try:
                found[_normalize(sharding.to_partition_spec(mesh))] = None
            except ShardingError:  # the axes cannot say it
                continue
        yield from (spec for spec in found if spec != was)

    def _try_price(self, specs: Mapping[int, Any]) -> PricedPlan | None:
        """What a step takes, each strategy once; None where it cannot be, or the steps are used up."""
        key = frozenset(specs.items())
        if key not in self.known:
            if len(self.known) >= self.steps:
                return None
            self.progress(len(self.known), self.steps)
            try:
                self.known[key] = self._price(specs, replace(self.sized.plan, strategy=NAME))
            except HloShardingError:
                self.known[key] = None
        return self.known[key]

    def _strategy_of(self, specs: Specs) -> Strategy:
        """These, and sums as the start's strategy has them."""
        return sum_as(self.planner.find_strategy(self.sized.plan.strategy), lambda *_: specs)

    def _price(self, specs: Mapping[int, Any], plan: Plan) -> PricedPlan:
        planner = self.planner.with_strategy(plan.strategy, self._strategy_of(specs))
        run = self.runs.simulate(planner.pipeline(plan, self.machine), plan.schedule, plan.microbatches)
        return PricedPlan.of(SizedPlan(plan, self.sized.batch_size), run)


def _normalize(spec: Any) -> Any:
    """The same for all ways to write a spec."""
    return spec_of(axes_of(spec))
