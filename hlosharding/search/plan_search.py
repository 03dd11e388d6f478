"""`hs.search`: every plan for a machine, priced by simulation; the best, the alternatives, and what each loses.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hlosharding.compiler import partition
from hlosharding.cost import Machine, Runtime, StepFigures, machine_of
from hlosharding.errors import ScheduleError, is_count
from hlosharding.ir import Module
from hlosharding.notebook import InNotebooks
from hlosharding.plans import ExportedPlan, PlanFile, export_plan
from hlosharding.progress import Progress, counting
from hlosharding.propagation import propagate
from hlosharding.schedule import Schedule
from hlosharding.search.batch_sizes import BatchSizes
from hlosharding.search.comparison import RunnerUp, memory_text, runners_up, shared_reason, winner_text
from hlosharding.search.least_seconds import LeastWork, least_seconds
from hlosharding.search.mutations import Improved, improve_plan
from hlosharding.search.optimum import OPTIMUM, OptimumOf
from hlosharding.search.plan_files import checkpoint_lines, one_program, plan_file
from hlosharding.search.plan_prices import sort_by_family
from hlosharding.search.plan_space import MICROBATCHES, choose_plans, find_said
from hlosharding.search.plans import Plan, SizedPlan
from hlosharding.search.present import Present, beside_present
from hlosharding.search.price_file import KnownPrices, Outcome, price_facts
from hlosharding.search.price_workers import PriceWorkers
from hlosharding.search.priced_plan import PricedPlan, sort_by_throughput
from hlosharding.search.pricer import Answer, Pricer, Task
from hlosharding.search.ranking import Ranking, rank_plans
from hlosharding.search.searchers import Grid, Searcher, SearchSpace, choose_searcher
from hlosharding.search.strategies import Strategy
from hlosharding.search.what_if import WhatIf, contenders, of_memory, other_conditions

AskPrices = Callable[[Sequence[Task]], Iterator[Answer]]
"""Who prices plans, in whatever order."""


@dataclass(frozen=True)
class SearchResult(InNotebooks):
    """The plans that were priced, the best first, and those that were not, with the reason.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> from hlosharding.cost import machines
    >>> def mlp(w, x):
    ...     return jnp.tanh(jnp.tanh(x @ w[0]) @ w[1])
    >>> found = search(mlp, jnp.ones((2, 256, 256)), jnp.ones((64, 256)), batch=["x"], machine=machines.h100(2))
    >>> found.best.num_devices, len(found.table) + len(found.refused) + len(found.pruned)
    (2, 9)
    """

    sizes: BatchSizes
    """The step."""
    machine: Machine
    table: tuple[PricedPlan, ...]
    """By time an example, those that fit first."""
    refused: tuple[tuple[SizedPlan, str], ...] = ()
    """Plans that the program does not allow, and why."""
    pruned: tuple[tuple[SizedPlan, float], ...] = ()
    """Plans that were not priced, for they take at least so many seconds."""

    @property
    def best(self) -> Plan:
        """The fastest that fits.  Raises ScheduleError where none does, with the reason."""
        first = self._first
        if not first.fits:
            raise ScheduleError(
                f"no plan fits {self.machine.name}",
                where=f"{len(self.table)} priced, {len(self.refused)} refused",
                remedy="take more devices, smaller batches, or look at .table and .refused",
            )
        return first.plan

    @property
    def _first(self) -> PricedPlan:
        """Raises ScheduleError, with the reason, where no plan was priced."""
        if not self.table:
            raise ScheduleError(self.explain())
        return self.table[0]

    @cached_property
    def schedule(self) -> Schedule:
        """The best plan's, for the batch size with which it is the best, ready to be run.

        Raises ScheduleError where none fits.
        """
        best = self.best
        return self.sizes.planner(self.table[0].batch_size).schedule(best, self.machine)

    def figures(self, priced: PricedPlan) -> StepFigures:
        """Of a step by one of the plans: model FLOPs utilization, what bounds it, tokens a second of a device where the
        batch has arrays of integers, [batch, length]; and how far off such predictions were.

        >>> import jax, jax.numpy as jnp, hlosharding as hs
        >>> shapes = jax.ShapeDtypeStruct((512, 64), jnp.bfloat16), jax.ShapeDtypeStruct((8, 32), jnp.int32)
        >>> found = search(lambda w, x: w[x] @ w.T, *shapes, batch=["x"], machine=hs.machines.h100(2))
        >>> figures = found.figures(found.table[0])
        >>> figures.kind, round(figures.tokens_per_s * found.table[0].time_s), figures.error.title
        ('MFU', 128, 'torchtitan, H100')
        """
        whole = self.sizes.planner(priced.batch_size).whole
        return StepFigures.of(whole, priced.time_s, self.machine, priced.breakdown)

    def plan_file(self) -> PlanFile:
        """The best plan, to be kept in a file: `found.plan_file().write("plan.toml")`.

        Raises ScheduleError where none fits.
        """
        best = self.best
        return plan_file(self.sizes.planner(self.table[0].batch_size), best, self.machine)

    def export_plan(self) -> ExportedPlan:
        """The best plan for a stock `jax.jit`: `in_shardings`, `out_shardings`, and the lines for the function itself.

        Raises ScheduleError where none fits, and for stages and microbatches, which `jax.jit` does not have.

        >>> import jax.numpy as jnp, hlosharding as hs
        >>> found = search(lambda w, x: x @ w, jnp.ones((64, 64)), jnp.ones((8192, 64)), machine=hs.machines.h100(4))
        >>> found.best.data, *map(tuple, found.export_plan().in_specs)
        (4, (), ('data',))
        """
        best, planner = self.best, self.sizes.planner(self.table[0].batch_size)
        # The lines are for the program as written: its own source has to say which layers are made again.
        program = propagate(one_program(planner, replace(best, recompute=False), self.machine))
        made, present = export_plan(partition(program, machine=self.machine)), self.present
        own = present.own_lines if present is not None else ()
        again = checkpoint_lines(planner.module) if best.recompute else ()
        return replace(made, unsaid=(*made.unsaid, *own, *again))

    def measured(self, most: int = 10, *, progress: Progress | bool = True) -> Ranking:
        """The fastest that fit, run on JAX's devices and ranked by what they take; of the best one's batch size."""
        size = self.table[0].batch_size if self.table else self.sizes.given
        plans = [priced.plan for priced in self.table if priced.fits and priced.batch_size == size][:most]
        return rank_plans(self.sizes.planner(size), plans, self.machine, progress=progress)

    def improved(self, steps: int = 200, *, progress: Progress | bool = True) -> Improved:
        """The first of the table by a strategy of its own: its strategy changed for one argument at a time, each change
        propagated and simulated, and kept where it saves time (or memory, as long as the plan does not fit), until none
        does or `steps` were priced.  If the optimum of all choices is not the first, that is a second start, and the
        better end counts.  `progress`: as of `search`.

        Raises ScheduleError where no plan was priced.

        >>> import jax, jax.numpy as jnp, hlosharding as hs
        >>> def narrow(down, up, x):
        ...     return jnp.sum(jnp.tanh(jnp.tanh(x @ down) @ up))
        >>> arrays = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((8192, 64), (64, 8192), (4096, 8192))]
        >>> found = search(narrow, *arrays, batch=["x"], machine=hs.machines.h100(4), plans=[Plan(1, 4)])
        >>> for change in found.improved().changes:
        ...     print(change.argument, change.after, change.time_s < change.time_before_s)
        down P() True
        x P('tensor',) True
        up None True
        """
        optimal = [priced for priced in self.table[1:] if priced.plan.strategy == OPTIMUM and priced.fits][:1]
        starts = [priced.sized_plan for priced in (self._first, *optimal)]
        return improve_plan(self.sizes.planner, starts, self.machine, steps, progress)

    def repriced(
        self,
        *,
        machine: Machine | None = None,
        batch_size: int | None = None,
        most: int = 6,
        progress: Progress | bool = True,
    ) -> SearchResult:
        """On another machine, or of a function for another batch, the plans that may be the best there: the best of
        this search, those that are faster and do not fit, and the best of each other choice; the first `most`.

        Raises ScheduleError where no plan was priced, for a machine of fewer devices, and for another batch of a
        program that was traced already.

        >>> import jax.numpy as jnp, hlosharding as hs
        >>> wide, rows = jnp.ones((1024, 1024)), jnp.ones((8, 1024))
        >>> found = search(lambda w, x: jnp.tanh(x @ w), wide, rows, machine=hs.machines.h100(2))
        >>> other = found.repriced(machine=hs.machines.a100(2), batch_size=4096)
        >>> other.table[0].batch_size, other.table[0].time_s > found.table[0].time_s
        (4096, True)
        """
        machine, size = machine or self.machine, batch_size or self._first.batch_size
        self.sizes.planner(size)  # raises here what else would refuse each plan
        every = [SizedPlan(plan, size) for plan in choose_plans(machine, contenders(self.table)[:most])]
        run = _PlanSearch(self.sizes, every, machine, KnownPrices(None, None), progress)
        return run.run(Grid(), Pricer(self.sizes, machine, None).price)

    def what_if(self, *, progress: Progress | bool = True) -> list[WhatIf]:
        """The best plan with links half and twice as fast, and of a function for half and twice the batch: of those
        that `repriced` prices.  `explain` says what other memory would change.

        Raises ScheduleError where no plan was priced.

        >>> import jax.numpy as jnp, hlosharding as hs
        >>> wide, rows = jnp.ones((1024, 1024)), jnp.ones((8, 1024))
        >>> found = search(lambda w, x: jnp.tanh(x @ w), wide, rows, machine=hs.machines.h100(2))
        >>> print(*(answer.condition for answer in found.what_if()), sep=", ")
        links inside the node half as fast, links inside the node twice as fast, batch of 4, batch of 16
        """
        best, is_traced = self._first, self.sizes.is_traced
        asked = other_conditions(self.machine, None if is_traced else best.batch_size)
        found = ((said, self.repriced(**other, progress=progress)) for said, other in asked)
        return [WhatIf.of(said, other.table, best.plan) for said, other in found if other.table]

    @cached_property
    def runners_up(self) -> list[RunnerUp]:
        """Of each choice the best plan that chooses otherwise; where nothing was priced there are none."""
        return runners_up(self.table) if self.table else []

    @cached_property
    def present(self) -> Present | None:
        """The program as it is annotated today, priced by the same simulation, and where the best plan differs; None
        where it is not annotated, or no plan was priced."""
        best = self.table[0] if self.table else None
        return best and beside_present(self.sizes.planner(best.batch_size), best, self.machine)

    def explain(self) -> str:
        """What the best plan takes; of each of its choices the best plan that chooses otherwise; the best with more and
        with less memory; how far off predictions were, and what donating would save.

        Where no plan could be priced, the reason that most of them share.
        """
        said = map(str, (*self.runners_up, *of_memory(self.table, self.machine), self.present or ""))
        return "\n".join(filter(None, (self.headline, *said, self.notes)))

    @property
    def headline(self) -> str:
        """What the best plan takes, or why there is none."""
        if not self.table:
            return f"no plan could be priced on {self.machine.name}; {shared_reason(self.refused)}"
        return winner_text(self.table[0], self.machine)

    @cached_property
    def notes(self) -> str:
        """What bounds the best plan, how far off predictions were, what donating would save."""
        return "\n".join(filter(None, (str(self.figures(self.table[0])), self._undonated))) if self.table else ""

    @property
    def _undonated(self) -> str:
        """Where nothing is donated, and the step updates arguments: what the best plan needs if they are."""
        best = self.table[0]
        donor = None if self.sizes.donates else self.sizes.planner(best.batch_size).with_donation()
        if donor is None:
            return ""
        planner, names = donor
        run = planner.schedule(best.plan, self.machine).simulate(self.machine)
        saved = best.peak_memory_bytes - run.peak_memory_bytes
        return f"donating {', '.join(names)} would save {memory_text(saved)}" if saved >= 5e6 else ""

    def __str__(self) -> str:
        return self.explain()


def search(
    program: Module | Callable[..., Any],
    *arguments: Any,
    batch: Sequence[str | int] | None = None,
    machine: Machine,
    plans: Iterable[Plan] | None = None,
    searcher: Searcher | None = None,
    microbatches: Sequence[int] = MICROBATCHES,
    schedules: Sequence[str] = ("",),
    orders: Sequence[str] = ("",),
    strategies: Sequence[str] | Mapping[str, Strategy] = ("",),
    replicas: Sequence[int] = (1,),
    context: Sequence[int] = (1,),
    experts: Sequence[int] = (1,),
    sequence: Sequence[bool] = (False,),
    recompute: Sequence[bool] = (False,),
    batch_sizes: Sequence[int] = (),
    donate: Sequence[str | int] = (),
    keep: int = 10,
    prune: bool = True,
    progress: Progress | bool = True,
    resume: str | Path | None = None,
    jobs: int = 1,
    runtime: Runtime | None = None,
) -> SearchResult:
    """Price plans for all devices of a machine by simulation.  With nothing but the step and the machine: what experts
    would try, and what they would try next, until no step from the best plan is faster.

    `program`: a traced Module, or a function with its arguments (arrays or ShapeDtypeStructs).  `batch`: paths of the
    arguments whose first dim is the batch; by default those along which nearly all products flow.  `searcher`: who says
    what is priced: by default `Climb()` where neither batch nor what follows is said, else `Grid()`, all that is asked
    for.  `plans`: by default every D/T/P of the devices, pipelines with each number of `microbatches` and each of
    `schedules` (names as of `pipelined`; "": 1F1B of a training step).  `orders`: of the ways on the links, as "PTD"
    (`Plan.order`; `Plan.ORDERS`: all), where that matters.  `strategies`: which arguments are split along which dims:
    names of `STRATEGIES`, "optimum" (how all values of a step in one stage had best lie), or functions by a name of
    one's own.  `replicas`, `context`, `experts`: of the data ways, how many hold copies of what is split over data,
    parts of sequences, or other experts; `sequence`: sequence parallelism, or not; `recompute`: does the backward pass
    make what layers in a scan made again, or not (`Plan`).  `batch_sizes`: of a
    function, let the batch have each of these sizes; what takes least an example is the best then.

    `donate`: arguments that the update may overwrite, by path or, of a function, by number, as of `jax.jit`.  `prune`:
    leave out plans of which it is certain that they are not among the `keep` fastest (of one batch size), for their
    arithmetic alone takes longer (`SearchResult.pruned`).  `progress`: shows a bar where a person watches, on a
    terminal's standard error or in a notebook; False shows none, a function is told (done, at most).
    `resume`: a file that keeps prices as they are found, and from which a search that was interrupted goes on.
    `jobs`: processes that price, for searches of minutes; each prunes by what it has seen itself.  `runtime`: who runs
    the step, as of `cost`.

    A price is that of the plan's schedule: a stage's forward and backward passes are programs of their own, and what
    the one keeps for the other is written to memory.  One program of both, as `hs.partition` makes it of the same
    shardings, may keep less, and be priced lower (GPT-2 on 8 ways of data: by a fifth).

    Raises ScheduleError where no batch is found, for arguments that are not there, for no schedule, order or strategy,
    for plans that need more devices or with which `microbatches`, `schedules` and the like are said, for a file of
    another search, and for a strategy that cannot be handed to other processes; HloShardingError where one of these
    dies.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def step(weights, rows):
    ...     loss = lambda w: jnp.sum(jnp.tanh(jnp.tanh(rows @ w["up"]) @ w["down"]))
    ...     return jax.tree.map(lambda w, g: w - g, weights, jax.grad(loss)(weights))
    >>> shape = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.float32)
    >>> weights = {"up": shape(1024, 65536), "down": shape(65536, 1024)}
    >>> found = hs.search(step, weights, shape(512, 1024), machine=hs.machines.h100(8))
    >>> print(found.best)  # few rows: weights are larger than what they make
    1/8/1/1
    """
    if not is_count(jobs):
        raise ScheduleError(f"{jobs} processes price nothing", remedy="take jobs=1")
    if not is_count(keep, 0):
        raise ScheduleError(f"keep={keep} is no number of plans", remedy="take 0 or more; the fastest is always kept")
    machine = machine_of(machine).with_runtime(runtime)
    asked: dict[str, Any] = {
        "microbatches": microbatches, "schedules": schedules, "orders": orders, "strategies": strategies,
        "replicas": replicas, "context": context, "experts": experts, "sequence": sequence,
        "recompute": recompute,
    }  # fmt: skip
    whose = {"batch": batch, "plans": plans, "batch_sizes": batch_sizes or None}
    searcher = choose_searcher(searcher, [*find_said(asked), *(name for name, it in whose.items() if it is not None)])
    named = {OPTIMUM: OptimumOf(machine), **(strategies if isinstance(strategies, Mapping) else {})}
    sizes = BatchSizes(program, arguments, batch, donate, named)
    space = choose_plans(machine, plans, **asked)
    # A name that nobody knows is an error of the call; left to the plans each of them would be refused for it.
    for name in {plan.strategy for plan in space}:
        sizes.planner(sizes.given).find_strategy(name)
    every = [SizedPlan(plan, size) for size in batch_sizes or [sizes.given] for plan in space]
    said = price_facts(sizes, every, machine, (batch, donate)) if resume is not None else None
    run = _PlanSearch(sizes, every, machine, KnownPrices(resume, said), progress)
    # Of several batch sizes the best takes least an example, and the time of a step does not tell that.
    most = max(1, keep) if prune and len(batch_sizes) < 2 else None
    if jobs == 1:
        return run.run(searcher, Pricer(sizes, machine, most).price)
    with PriceWorkers(jobs, sizes, every, machine, most) as workers:
        return run.run(searcher, workers.price)


@dataclass(frozen=True)
class _PlanSearch:
    sizes: BatchSizes
    plans: Sequence[SizedPlan]
    machine: Machine
    known: KnownPrices
    progress: Progress | bool

    def run(self, searcher: Searcher, ask: AskPrices) -> SearchResult:
        """`ask`: who prices."""
        found = dict[SizedPlan, Outcome | None]()
        with counting("pricing plans", self.progress) as progress:

            def price(plans: Sequence[SizedPlan]) -> dict[SizedPlan, Outcome | None]:
                # What takes least by its bound comes first, since its time leaves others out; families stay together,
                # since of one that was left nothing is kept (`PlanPrices`).
                order = sort_by_family(sorted(plans, key=lambda each: (self._bound(each), each)))
                tasks = [Task(each, self._bound(each), self.known.found.get(each)) for each in order]
                before, most = len(found), len(found) + len(tasks)
                made = self._collect_outcomes(iter(ask(tasks)), tasks, lambda done: progress(before + done, most))
                found.update(made)
                return made

            given = self.sizes.given
            searcher.search(SearchSpace(self.sizes.planner(given), self.machine, given, self.plans), price)
        return SearchResult(
            self.sizes,
            self.machine,
            tuple(sort_by_throughput(outcome for outcome in found.values() if isinstance(outcome, PricedPlan))),
            tuple((plan, outcome) for plan, outcome in found.items() if isinstance(outcome, str)),
            tuple((plan, self._bound(plan)) for plan, outcome in found.items() if outcome is None),
        )

    def _bound(self, sized: SizedPlan) -> float:
        """Seconds that it takes at least.  Nothing is known of sizes for which the step was not traced."""
        work = self._work.get(sized.batch_size)
        return least_seconds(sized.plan, work) if work is not None else 0.0

    @cached_property
    def _work(self) -> dict[int, LeastWork]:
        planners = {size: self.sizes.planner(size) for size in self.sizes.traced}
        return {size: LeastWork.of(each.module, each.numbers, self.machine) for size, each in planners.items()}

    def _collect_outcomes(
        self, answers: Iterator[Answer], tasks: Sequence[Task], tell: Callable[[int], None]
    ) -> dict[SizedPlan, Outcome | None]:
        """Of each plan, in the order of the tasks; known from then on."""
        made = dict[SizedPlan, Outcome | None]()
        for done in range(len(tasks)):
            tell(done)
            plan, outcome = next(answers)
            if outcome is not None and plan not in self.known.found:
                self.known.keep(plan, outcome)
            made[plan] = outcome
        return {task.plan: made[task.plan] for task in tasks}
