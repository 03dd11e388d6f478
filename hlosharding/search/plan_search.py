"""`hs.search`: every plan for a machine, priced by simulation; the best, the alternatives, and what each loses.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from pathlib import Path
from typing import Any

from hlosharding.cost import Machine, cost
from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.ir import Module
from hlosharding.notebook import InNotebooks
from hlosharding.partitioner import PartitionOptions
from hlosharding.schedule import Schedule, ScheduleSimulation
from hlosharding.search.batch_sizes import BatchSizes
from hlosharding.search.comparison import explained
from hlosharding.search.mutations import Improved, improved
from hlosharding.search.plan_prices import PlanPrices
from hlosharding.search.plan_space import MICROBATCHES, least_seconds, plan_space
from hlosharding.search.plans import Plan, SizedPlan
from hlosharding.search.price_file import Asked, KnownPrices, Outcome, facts
from hlosharding.search.priced_plan import PricedPlan, in_order
from hlosharding.search.ranking import Ranking, ranked
from hlosharding.search.strategies import Strategy


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
        """The fastest that fits.  Raises ScheduleError where none does."""
        if not self.table or not self.table[0].fits:
            raise ScheduleError(
                f"no plan fits {self.machine.name}",
                where=f"{len(self.table)} priced, {len(self.refused)} refused",
                remedy="take more devices, smaller batches, or look at .table and .refused",
            )
        return self.table[0].plan

    @cached_property
    def schedule(self) -> Schedule:
        """The best plan's, for the batch size with which it is the best, ready to be run."""
        return self.sizes.planner(self.table[0].batch_size).schedule(self.best, self.machine)

    def measured(self, most: int = 10) -> Ranking:
        """The fastest that fit, run on JAX's devices and ranked by what they take; of the best one's batch size."""
        size = self.table[0].batch_size if self.table else self.sizes.given
        plans = [priced.plan for priced in self.table if priced.fits and priced.batch_size == size][:most]
        return ranked(self.sizes.planner(size), plans, self.machine)

    def improved(self, steps: int = 200) -> Improved:
        """The first of the table by a strategy of its own: its strategy changed for one argument at a time, each change
        propagated and simulated, and kept where it saves time (or memory, as long as the plan does not fit), until none
        does or `steps` were priced.

        Raises ScheduleError where no plan was priced.

        >>> import jax, jax.numpy as jnp, hlosharding as hs
        >>> def narrow(down, up, x):
        ...     return jnp.sum(jnp.tanh(jnp.tanh(x @ down) @ up))
        >>> arrays = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((8192, 64), (64, 8192), (4096, 8192))]
        >>> found = search(narrow, *arrays, batch=["x"], machine=hs.machines.h100(4), plans=[Plan(1, 4)])
        >>> for change in found.improved().changes:
        ...     print(change.argument, *change.after, change.time_s < change.time_before_s)
        x None tensor True
        down tensor True
        up None tensor True
        """
        if not self.table:
            raise ScheduleError("no plan was priced", remedy="look at .refused for the reasons")
        first = self.table[0].sized_plan
        return improved(self.sizes.planner(first.batch_size), first, self.machine, steps)

    def explain(self) -> str:
        """Why the winner won: against the best of each pure kind, and the next best."""
        return explained(self.table, self.machine)

    def __str__(self) -> str:
        return self.explain()


def search(
    program: Module | Callable[..., Any],
    *arguments: Any,
    batch: Sequence[str | int],
    machine: Machine,
    plans: Iterable[Plan] | None = None,
    microbatches: Sequence[int] = MICROBATCHES,
    schedules: Sequence[str] = ("",),
    orders: Sequence[str] = ("",),
    strategies: Sequence[str] | Mapping[str, Strategy] = ("",),
    batch_sizes: Sequence[int] = (),
    donate: Sequence[str | int] = (),
    keep: int = 10,
    prune: bool = True,
    progress: Callable[[int, int], None] | None = None,
    resume: str | Path | None = None,
) -> SearchResult:
    """Price the plans for all devices of a machine by simulation.

    `program`: a traced Module, or a function with its arguments (arrays or ShapeDtypeStructs).  `batch`: paths of the
    arguments whose first dim is the batch.  `plans`: by default every D/T/P of the devices, pipelines with each number
    of `microbatches` and each of `schedules` (names as of `pipelined`; "": 1F1B of a training step).  `orders`: of the
    ways on the links, as "PTD" (`Plan.order`; `ORDERS`: all), where that matters.  `strategies`: which arguments
    are split along which dims: names of `STRATEGIES`, or functions by a name of one's own.  `batch_sizes`: of a
    function, let the batch have each of these sizes; what takes least an example is the best then.  `donate`:
    arguments that the update may overwrite, as of `jax.jit`.  All are priced as propagation shards them, the `keep`
    fastest again with all that the partitioner looks at.  `prune`: leave out plans of which it is certain that they are
    not among the `keep` fastest (of one batch size).  `progress`: told (plans done, plans in all).
    `resume`: a file that keeps prices as they are found, and from which a search that was interrupted goes on.

    Raises ScheduleError for arguments that are not there, for no order or strategy, and for a file of another search.
    """
    sizes = BatchSizes(program, arguments, batch, donate, strategies if isinstance(strategies, Mapping) else None)
    if machine.topology == "switch" and machine.num_nodes == 1:
        orders = ("",)  # whoever is next to whom
    grid = plan_space(machine.num_devices, microbatches, schedules, orders, strategies)
    space = list(plans if plans is not None else grid)
    for name in {plan.strategy for plan in space}:
        sizes.planner(sizes.given).strategy(name)
    every = [SizedPlan(plan, size) for size in batch_sizes or [sizes.given] for plan in space]
    said = facts(sizes, every, machine, (batch, donate)) if resume is not None else None
    run = _Search(sizes, every, machine, KnownPrices(resume, said), keep, prune=prune and len(batch_sizes) < 2)
    run.run(progress)
    return SearchResult(sizes, machine, tuple(in_order(run.priced)), tuple(run.refused), tuple(run.pruned))


class _Search:
    def __init__(
        self,
        sizes: BatchSizes,
        plans: Sequence[SizedPlan],
        machine: Machine,
        known: KnownPrices,
        most: int,
        *,
        prune: bool,
    ) -> None:
        self.sizes, self.plans, self.machine, self.known = sizes, plans, machine, known
        self.most, self.prune = most, prune
        self.rough = PlanPrices(sizes, plans, machine, PartitionOptions(only_propagated=True))
        self.priced: list[PricedPlan] = []
        self.refused: list[tuple[SizedPlan, str]] = []
        self.pruned: list[tuple[SizedPlan, float]] = []

    def run(self, progress: Callable[[int, int], None] | None) -> None:
        bounds = self._bounds()
        for done, plan in enumerate(sorted(self.plans, key=lambda each: (bounds[each], each))):
            if progress is not None:
                progress(done, len(self.plans))
            if bounds[plan] > self._worst_kept():
                self.pruned.append((plan, bounds[plan]))
            else:
                self._price(Asked(plan, exact=False), self.rough.simulated)
        self._price_again()

    def _bounds(self) -> dict[SizedPlan, float]:
        """Seconds that each takes at least.  Nothing is known of sizes for which the step was not traced."""
        wholes = {size: cost(self.sizes.planner(size).module, self.machine) for size in self.sizes.traced}
        return {
            each: least_seconds(each.plan, wholes[each.batch_size], self.machine) if each.batch_size in wholes else 0.0
            for each in self.plans
        }

    def _worst_kept(self) -> float:
        """Plans that take longer are not among the fastest."""
        fitting = [priced.time_s for priced in self.priced if priced.fits]
        kept = max(1, self.most)
        if not self.prune or len(fitting) < kept:
            return float("inf")
        return nsmallest(kept, fitting)[-1]

    def _price(self, asked: Asked, simulated: Callable[[SizedPlan], ScheduleSimulation]) -> None:
        if asked not in self.known.found:
            self.known.keep(asked, _outcome(asked.plan, simulated))
        outcome = self.known.found[asked]
        if isinstance(outcome, PricedPlan):
            self.priced.append(outcome)
        else:
            self.refused.append((asked.plan, outcome))

    def _price_again(self) -> None:
        """Those at the top as they will run: with all that the partitioner looks at."""
        table = in_order(self.priced)
        self.priced = table[self.most :]
        exact = PlanPrices(self.sizes, (), self.machine)
        for priced in table[: self.most]:
            self._price(Asked(priced.sized_plan, exact=True), exact.simulated_alone)


def _outcome(plan: SizedPlan, simulated: Callable[[SizedPlan], ScheduleSimulation]) -> Outcome:
    try:
        return PricedPlan.of(plan, simulated(plan))
    except HloShardingError as error:
        return str(error)
