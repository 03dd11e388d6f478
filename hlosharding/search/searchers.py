"""Who says which plans are priced: all that are asked for, or from an expert's first thoughts uphill.

Floor: search.  A searcher has one method; users may bring their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Protocol

from hlosharding.cost import Machine
from hlosharding.errors import ScheduleError
from hlosharding.partitioner import alike_in_layers
from hlosharding.schedule import recomputed_ops
from hlosharding.search.optimum import OPTIMUM
from hlosharding.search.plan_space import divisors
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan, SizedPlan
from hlosharding.search.price_file import Outcome
from hlosharding.search.priced_plan import PricedPlan
from hlosharding.search.stages import DividedPlan, LayerPrices, divide_plan
from hlosharding.search.tensor_parallel import expert_dims

PricePlans = Callable[[Sequence[SizedPlan]], Mapping[SizedPlan, Outcome | None]]
"""What becomes of plans: a price, why the program does not allow it, or None, where it is not among the fastest."""


@dataclass(frozen=True)
class SearchSpace:
    """What a searcher chooses from."""

    planner: Planner
    """Of the step, for a batch of the size that was given."""
    machine: Machine
    batch_size: int
    plans: Sequence[SizedPlan]
    """All that were asked for."""

    @property
    def num_ops(self) -> int:
        """Of the program; bodies of loops, and layers that are alike, count once."""
        module = self.planner.module
        return sum(1 for _ in module.instructions) - sum(len(row) - 1 for row in alike_in_layers(module))

    def may_be(self, plan: Plan) -> bool:
        """Has the program what a plan splits over experts, or computes again?"""
        return (plan.experts == 1 or self._has_experts) and (not plan.recompute or self._stacks_much)

    @cached_property
    def _has_experts(self) -> bool:
        return bool(expert_dims(self.planner.module, 2, batch=self.planner.numbers))

    @cached_property
    def _stacks_much(self) -> bool:
        return bool(recomputed_ops(self.planner.module))


class Searcher(Protocol):
    """Chooses what is priced; the fastest of that is the best plan."""

    def search(self, space: SearchSpace, price: PricePlans) -> None:
        """Have plans priced, as many as it takes, some at a time: of those priced together few may have to be cut."""
        ...


class Grid:
    """All plans that were asked for."""

    def search(self, space: SearchSpace, price: PricePlans) -> None:
        """At once."""
        price(space.plans)


@dataclass(frozen=True)
class Climb:
    """From the plans that experts try first, by steps that experts try next, until none is faster or `most` are priced.
    Of the fastest, where it has one stage and the program is not too long, the arguments are then laid out as the
    optimum of all choices has them.

    The fastest plan whose steps were not taken yet goes on, so a slower one has its turn where the fastest is a summit.
    """

    most: int = 24
    """Plans that are priced: for models of some billion weights as many as take about a minute."""

    def search(self, space: SearchSpace, price: PricePlans) -> None:
        """One plan's steps after the other."""
        run = _Ascent(space, price)
        run.price(first_plans(space.machine), self.most)
        if run.best is None:  # as of a batch of few examples
            run.price(sorted((each.plan for each in space.plans), key=lambda p: p.stages), self.most)
        # One price is left for the optimum.
        run.climb(self.most - 1)
        if run.best is not None and run.best.plan.microbatches == 1 and space.num_ops <= _MOST_CHOSEN:
            free = _chosen_freely(run.best.plan)
            run.done.add(SizedPlan(free, space.batch_size))  # its steps would be optima again, of other ways
            run.price([free], self.most)
        run.climb(self.most)


@dataclass
class _Ascent:
    space: SearchSpace
    ask: PricePlans
    known: dict[SizedPlan, Outcome | None] = field(default_factory=dict[SizedPlan, "Outcome | None"])
    done: set[SizedPlan] = field(default_factory=set[SizedPlan])
    """Plans whose steps were taken."""

    @property
    def priced(self) -> list[PricedPlan]:
        """What promises most first."""
        found = (each for each in self.known.values() if isinstance(each, PricedPlan))
        return sorted(found, key=lambda each: (each.promise, each.time_s, each.sized_plan))

    @property
    def best(self) -> PricedPlan | None:
        """The fastest so far."""
        return next(iter(self.priced), None)

    def climb(self, most: int) -> None:
        """Until so many are priced in all, or no step is faster."""
        while len(priced := self.priced) < most:
            origin = next((each for each in priced if each.sized_plan not in self.done), None)
            # As long as nothing fits steps lead to less memory, and no time is too long for that.
            if origin is None or (origin.fits and origin.time_s > _HOPE * priced[0].time_s):
                return
            self.done.add(origin.sized_plan)
            self.price(next_plans(origin.plan, self.space.machine), most)

    def price(self, plans: Iterable[Plan], most: int) -> None:
        """Those that are new, until so many are priced in all."""
        space = self.space
        fitting = (plan for plan in plans if plan.divides(space.batch_size) and space.may_be(plan))
        # Two steps may lead to one plan.
        new = dict.fromkeys(each for p in fitting if (each := SizedPlan(p, space.batch_size)) not in self.known)
        self.known.update(self.ask(list(new)[: max(0, most - len(self.priced))]))


@dataclass(frozen=True)
class InterOp:
    """Alpa's pass between operators: for each number of stages, and of tensor ways inside them or of ways of experts,
    layers are priced one by one, and a dynamic program says how many each stage has so that a step takes least.  What
    promises most is priced as a whole: so, with stages of equal time (of which one may fuse what layers by themselves
    do not), and with two chunks of these a device; beside what has no stages and promises as much, and an expert's
    first thoughts, whole and in microbatches, as far as they may fit.
    """

    rounds: tuple[int, ...] = (8,)
    """Microbatches of a pipeline, over its stages."""
    most: int = 4
    """Pipelines that promise most."""

    def search(self, space: SearchSpace, price: PricePlans) -> None:
        """Pipelines together, as their programs have much in common."""
        layers = LayerPrices(space.planner, space.machine)
        promising, refused = list[DividedPlan](), list[Plan]()
        # Others are told from those of few data ways, which sum least.
        for ways in sorted(pipelines(space.machine), key=lambda ways: (ways.data == 1, ways)):
            try:
                promising += self._divide(ways, space, layers)
            except ScheduleError:  # which says why, where the plan is priced
                refused.append(ways)
        best = [each.plan for each in sorted(promising)]
        alone = [plan for plan in best[: self.most] if plan.stages == 1][:1]
        first = [plan for plan in first_plans(space.machine) if plan.stages == 1]
        # Of Wide-ResNet 1B on four V100s 4/1/1/16 zero1 takes 44.9 s, the best of two stages 49.0.
        in_parts = (replace(plan, microbatches=max(self.rounds)) for plan in first if plan.strategy == "zero1")
        whole = dict.fromkeys((*first, *in_parts, *alone))
        chosen = [plan for plan in best if plan.stages > 1][: self.most]
        others = product(("", "1f1b-x2"), chosen)
        by_time = (replace(plan, layers=(), even=False, schedule=schedule) for schedule, plan in others)
        price([SizedPlan(p, space.batch_size) for p in whole if p.divides(space.batch_size) and layers.may_hold(p)])
        price([SizedPlan(plan, space.batch_size) for plan in dict.fromkeys((*chosen, *by_time, *refused))])

    def _divide(self, ways: Plan, space: SearchSpace, layers: LayerPrices) -> Iterator[DividedPlan]:
        """With each number of microbatches; where the smallest ones do not fit, larger ones do not."""
        for rounds in sorted(self.rounds, reverse=True):
            plan = replace(ways, microbatches=rounds * ways.stages)
            if plan.divides(space.batch_size) and space.may_be(plan):
                found = divide_plan(layers, plan)
                if found is None:
                    return
                yield found


def choose_searcher(given: Searcher | None, said: Sequence[str]) -> Searcher:
    """Who is given; else `Climb` where nothing is said of the plans, by name.  Raises ScheduleError where both are."""
    if given is None:
        return Grid() if said else Climb()
    # The batch is the program's; which plans there are it does not say.
    names = [name for name in said if name != "batch"]
    if isinstance(given, Climb | InterOp) and names:
        what = f"{', '.join(names)} are said, and a searcher that chooses plans by itself"
        raise ScheduleError(what, remedy="leave out one of the two, or take searcher=Grid()")
    return given


_MOST_CHOSEN = 4_000
"""Ops of a program, layers that are alike once, for which the optimum of all choices is looked for: for five listed
layers of Llama (4,100) it takes 5 CPU seconds; for eight, each chosen for itself (6,400), two minutes."""
_HOPE = 1.5
"""Times as long as the fastest: a step halves or doubles one thing, and rarely saves a third."""


def _chosen_freely(plan: Plan) -> Plan:
    """On the axes of a plan; one axis alone is called data, whatever lies along it."""
    ways = (plan.data, plan.tensor) if plan.data > 1 else (plan.tensor, 1)
    return replace(plan, data=ways[0], tensor=ways[1], strategy=OPTIMUM, replicas=1, sequence=False)


_STRATEGIES = ("fsdp", "zero1", "")
"""Of weights over the data ways: split, split for the update alone, whole."""


def first_plans(machine: Machine) -> Iterator[Plan]:
    """What experts try first: data ways alone; tensor ways inside a node; and stages of such.

    >>> from hlosharding.cost import machines
    >>> [str(plan) for plan in first_plans(machines.h100(8))][:3]
    ['8/1/1/1 fsdp', '8/1/1/1 zero1', '8/1/1/1']
    """
    devices, node = machine.num_devices, min(machine.num_devices, machine.devices_per_node)
    yield from (Plan(devices, strategy=name) for name in _STRATEGIES)
    if devices > node and devices % node == 0:
        yield Plan(devices, strategy="fsdp", replicas=devices // node)
    if devices % node == 0 and node > 1:
        yield from (Plan(devices // node, node, strategy=name, sequence=True) for name in ("fsdp", "zero1"))
        for stages in (2, 8):
            if devices // node % stages == 0:
                yield Plan(devices // node // stages, node, stages, 4 * stages, strategy="zero1", sequence=True)
    for stages in (2, 4):
        if devices % stages == 0:
            yield Plan(devices // stages, 1, stages, 8 * stages, strategy="zero1")


def pipelines(machine: Machine) -> Iterator[Plan]:
    """Stages of as many devices each, of these each number as tensor ways inside a node, or as many as a node has as
    ways of experts; a microbatch for each stage.

    >>> from hlosharding.cost import machines
    >>> [str(plan) for plan in pipelines(machines.h100(4))]  # doctest: +NORMALIZE_WHITESPACE
    ['4/1/1/1 zero1', '4/1/1/1 zero1 experts=4', '2/2/1/1 zero1 sequence', '1/4/1/1 zero1 sequence',
     '2/1/2/2 zero1', '2/1/2/2 zero1 experts=2', '1/2/2/2 zero1 sequence', '1/1/4/4 zero1']
    """
    node = machine.devices_per_node
    for stages, tensor in product(divisors(machine.num_devices), divisors(node)):
        data, rest = divmod(machine.num_devices, stages * tensor)
        if data and not rest:
            yield Plan(data, tensor, stages, stages, strategy="zero1", sequence=tensor > 1)
        if tensor == 1 and (experts := math.gcd(data, node)) > 1:
            yield Plan(data, tensor, stages, stages, strategy="zero1", experts=experts)


def next_plans(plan: Plan, machine: Machine) -> Iterator[Plan]:
    """One step from a plan: half or twice as many ways of a kind, of microbatches or of copies; another strategy or
    schedule; sequences split or not, layers computed again or not.

    >>> from hlosharding.cost import machines
    >>> [str(step) for step in next_plans(Plan(4, 2), machines.h100(8)) if step.stages == 1]
    ... # doctest: +NORMALIZE_WHITESPACE
    ['4/2/1/1 sequence', '4/2/1/1 recompute', '4/2/1/1 fsdp', '4/2/1/1 zero1', '8/1/1/1', '2/4/1/1',
     '4/2/1/1 context=2', '4/2/1/1 experts=2']
    """
    if plan.tensor > 1:
        yield replace(plan, sequence=not plan.sequence)
    yield replace(plan, recompute=not plan.recompute)
    for name in _STRATEGIES:
        if name != plan.strategy:
            yield replace(plan, strategy=name, replicas=plan.replicas if name else 1)
    ways = {"data": plan.data, "tensor": plan.tensor, "stages": plan.stages}
    for fewer, more in (("tensor", "data"), ("data", "tensor"), ("data", "stages"), ("stages", "data"),
                        ("tensor", "stages"), ("stages", "tensor")):  # fmt: skip
        if ways[fewer] % 2 == 0:
            yield from _made(plan, {**ways, fewer: ways[fewer] // 2, more: ways[more] * 2}, machine)
    if plan.stages > 1:
        yield from (replace(plan, microbatches=k) for k in _halved_and_doubled(plan.microbatches) if k >= 2)
        others = (name for name in ("", "1f1b-x2", "1f1b-x4") if name != plan.schedule)
        yield from (replace(plan, schedule=name, layers=()) for name in others)
    for part in ("replicas", "context", "experts"):
        if plan.strategy or part != "replicas":  # else all data ways hold copies
            yield from _with_part(plan, part)


def _made(plan: Plan, ways: Mapping[str, int], machine: Machine) -> Iterator[Plan]:
    """The plan with other ways, if it can be; a first stage's microbatches fill the pipeline four times."""
    stages = ways["stages"]
    if ways["tensor"] > machine.devices_per_node or ways["data"] % (plan.replicas * plan.context * plan.experts):
        return
    several = plan.microbatches if plan.stages > 1 else 4 * stages
    yield replace(
        plan,
        **ways,
        microbatches=several if stages > 1 else 1,
        schedule=plan.schedule if stages > 1 else "",
        even=plan.even and stages > 1,
        layers=plan.layers if stages == plan.stages else (),
        sequence=ways["tensor"] > 1 and (plan.sequence or plan.tensor == 1),
    )


def _with_part(plan: Plan, part: str) -> Iterator[Plan]:
    # Two ways have to be left to split weights over: with copies on all of them it is the plan of no strategy.
    rest, least = plan.data // (plan.replicas * plan.context * plan.experts), 4 if part == "replicas" else 2
    for size in _halved_and_doubled(getattr(plan, part)):
        if size < getattr(plan, part) or (rest % 2 == 0 and rest >= least):
            yield replace(plan, **{part: size})


def _halved_and_doubled(count: int) -> Iterator[int]:
    yield 2 * count
    if count % 2 == 0:
        yield count // 2
