"""`hs.search`: every plan for a machine, priced by simulation; the best, the alternatives, and what each loses.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import Any

from hlosharding.cost import Machine, cost
from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.frontends import trace
from hlosharding.ir import Module
from hlosharding.notebook import InNotebooks
from hlosharding.partitioner import PartitionOptions
from hlosharding.schedule import Cutter, Schedule
from hlosharding.search.comparison import explained
from hlosharding.search.plan_space import MICROBATCHES, least_seconds, plan_space
from hlosharding.search.plans import Plan
from hlosharding.search.priced_plan import PricedPlan


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

    module: Module
    batch: tuple[str | int, ...]
    machine: Machine
    table: tuple[PricedPlan, ...]
    """By time, those that fit first."""
    refused: tuple[tuple[Plan, str], ...] = ()
    """Plans that the program does not allow, and why."""
    pruned: tuple[tuple[Plan, float], ...] = ()
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
        """The best plan's, ready to be run."""
        return self.best.built(self.module, self.batch, self.machine)

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
    keep: int = 10,
    prune: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> SearchResult:
    """Price the plans for all devices of a machine by simulation.

    `program`: a traced Module, or a function with its arguments (arrays or ShapeDtypeStructs).  `batch`: paths of the
    arguments whose first dim is the batch.  `plans`: by default every D/T/P of the devices, pipelines with each number
    of `microbatches`.  All are priced as propagation shards them, the `keep` fastest again with all that the
    partitioner looks at.  `prune`: leave out plans of which it is certain that they are not among the `keep` fastest.
    `progress`: told (plans done, plans in all).

    Raises ScheduleError for arguments that are not there.
    """
    module = program if isinstance(program, Module) else trace(program)(*arguments)
    return _Search(module, tuple(batch), machine, keep, prune=prune).run(
        list(plans if plans is not None else plan_space(machine.num_devices, microbatches)), progress
    )


class _Search:
    def __init__(
        self, module: Module, batch: tuple[str | int, ...], machine: Machine, most: int, *, prune: bool
    ) -> None:
        self.module, self.batch, self.machine, self.most, self.prune = module, batch, machine, most, prune
        self.rough = Cutter(module, batch, PartitionOptions(only_propagated=True))
        self.exact = Cutter(module, batch)
        self.priced: list[PricedPlan] = []
        self.refused: list[tuple[Plan, str]] = []
        self.pruned: list[tuple[Plan, float]] = []

    def run(self, plans: Sequence[Plan], progress: Callable[[int, int], None] | None) -> SearchResult:
        whole = cost(self.module, self.machine)
        bounds = {plan: least_seconds(plan, whole, self.machine) for plan in plans}
        for done, plan in enumerate(sorted(plans, key=lambda plan: (bounds[plan], plan))):
            if progress is not None:
                progress(done, len(plans))
            if bounds[plan] > self._worst_kept():
                self.pruned.append((plan, bounds[plan]))
            else:
                self._price(plan, self.rough)
        self._price_again()
        table = _sorted(self.priced)
        return SearchResult(
            self.module, self.batch, self.machine, tuple(table), tuple(self.refused), tuple(self.pruned)
        )

    def _worst_kept(self) -> float:
        """Plans that take longer are not among the fastest."""
        fitting = [priced.time_s for priced in self.priced if priced.fits]
        if not self.prune or len(fitting) < self.most:
            return float("inf")
        return nsmallest(self.most, fitting)[-1]

    def _price(self, plan: Plan, cutter: Cutter) -> None:
        try:
            run = plan.estimated(cutter, self.batch, self.machine)
        except HloShardingError as error:
            self.refused.append((plan, str(error)))
            return
        self.priced.append(PricedPlan.of(plan, run))

    def _price_again(self) -> None:
        """Those at the top as they will run: with all that the partitioner looks at."""
        table = _sorted(self.priced)
        self.priced = table[self.most :]
        for priced in table[: self.most]:
            self._price(priced.plan, self.exact)


def _sorted(priced: Sequence[PricedPlan]) -> list[PricedPlan]:
    return sorted(priced, key=lambda each: (not each.fits, each.time_s, each.plan))
