"""`hs.rank`: plans that are run, and how well the prices told which is the fastest.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random
from typing import Any, NamedTuple

from hlosharding.cost import Machine, calibrate, machine_of
from hlosharding.errors import HloShardingError, ScheduleError, is_count
from hlosharding.frontends import trace
from hlosharding.ir import Module
from hlosharding.notebook import InNotebooks
from hlosharding.progress import Progress, counting
from hlosharding.search import rank_figures
from hlosharding.search.comparison import shared_reason
from hlosharding.search.plan_runs import OneProcess, PlanRunner
from hlosharding.search.plan_space import MICROBATCHES, plan_space
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan
from hlosharding.search.rank_figures import Inversion


class RankedPlan(NamedTuple):
    """A plan that was priced and run."""

    plan: Plan
    predicted_s: float
    measured_s: float


@dataclass(frozen=True)
class Ranking(InNotebooks):
    """Plans by measured time, the fastest first, and how well the predicted times agree with the measured ones.

    >>> rows = RankedPlan(Plan(2), 1.0, 3.0), RankedPlan(Plan(1, 2), 2.0, 2.0), RankedPlan(Plan(1, 1, 2, 2), 3.0, 4.0)
    >>> found = Ranking.of(rows)
    >>> str(found.best), found.spearman, found.regret, len(found.inversions)
    ('1/2/1/1', 0.5, 0.5, 1)
    """

    table: tuple[RankedPlan, ...]
    """By measured time."""
    refused: tuple[tuple[Plan, str], ...] = ()
    """Plans that the program does not allow, and why."""
    runner: str = ""
    """How they ran."""

    @classmethod
    def of(cls, rows: Iterable[RankedPlan], refused: Iterable[tuple[Plan, str]] = (), runner: str = "") -> Ranking:
        """In order."""
        return cls(tuple(sorted(rows, key=lambda row: (row.measured_s, row.plan))), tuple(refused), runner)

    @property
    def best(self) -> Plan:
        """The fastest that was run.  Raises ScheduleError where none could be."""
        if not self.table:
            raise ScheduleError(f"no plan could be run; {shared_reason(self.refused)}")
        return self.table[0].plan

    @property
    def times(self) -> list[tuple[float, float]]:
        """(predicted, measured) seconds, in the table's order."""
        return [row[1:] for row in self.table]

    @property
    def spearman(self) -> float:
        """Rank correlation of predicted and measured times; nan for fewer than two plans."""
        return rank_figures.spearman(self.times)

    @cached_property
    def spearman_by_stages(self) -> dict[int, float]:
        """The same among plans of as many stages."""
        counts = sorted({row.plan.stages for row in self.table})
        return {n: rank_figures.spearman([row[1:] for row in self.table if row.plan.stages == n]) for n in counts}

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1|."""
        return rank_figures.median_error(self.times)

    @property
    def scaled_median_error(self) -> float:
        """The same after one factor on all predictions."""
        return rank_figures.median_error(self.times, scale=rank_figures.common_scale(self.times))

    @property
    def regret(self) -> float:
        """How much longer the best by prediction takes than the best there is, as a share of that."""
        return rank_figures.regret(self.times)

    @property
    def inversions(self) -> list[Inversion]:
        """The worst pairs in the wrong order, by numbers in the table."""
        return rank_figures.find_inversions(self.times)

    def __str__(self) -> str:
        if not self.table:
            return f"no plan could be run; {shared_reason(self.refused)}"
        return (
            f"{len(self.table)} plans run: rank correlation {self.spearman:.3f}, off by {self.median_error:.0%} in the"
            f" median ({self.scaled_median_error:.0%} after one factor), top-1 regret {self.regret:.1%}"
        )


def rank(
    program: Module | Callable[..., Any],
    *arguments: Any,
    batch: Sequence[str | int],
    plans: Iterable[Plan] | None = None,
    count: int = 20,
    seed: int = 0,
    machine: Machine | None = None,
    runner: PlanRunner | None = None,
    progress: Progress | bool = True,
) -> Ranking:
    """Run plans on JAX's devices and compare what they take with what they should.

    `program`, `arguments`, `batch`: as of `search`.  `plans`: by default `count` of all plans for the devices, drawn
    with `seed`.  `machine`: whose prices count (default: calibrated now, for as many devices as work at once).
    `runner`: who runs them (default: this process).  `progress`: as of `search`.

    Raises ScheduleError for arguments that are not there.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> def mlp(w, x):
    ...     return jnp.tanh(jnp.tanh(x @ w[0]) @ w[1])
    >>> plans = [Plan(2), Plan(1, 2), Plan(1, 1, 2, 2)]
    >>> machine = hs.machines.cpu(2)
    >>> found = rank(mlp, jnp.ones((2, 64, 64)), jnp.ones((16, 64)), batch=["x"], plans=plans, machine=machine)
    >>> len(found.table) + len(found.refused)
    3
    """
    module = program if isinstance(program, Module) else trace(program)(*arguments)
    if not is_count(count):
        raise ScheduleError(f"count={count} runs no plan", remedy="take count=1 or more")
    chosen = list(plans) if plans is not None else sample_plans(_num_devices(), count, seed)
    return rank_plans(Planner(module, batch), chosen, machine_of(machine), runner, progress)


def rank_plans(
    planner: Planner,
    plans: Sequence[Plan],
    machine: Machine | None = None,
    runner: PlanRunner | None = None,
    progress: Progress | bool = True,
) -> Ranking:
    """As of `rank`, plans of a program that a planner cuts."""
    runner = runner or this_process()
    machines = (lambda busy: machine) if machine is not None else calibrate_busy
    rows: list[RankedPlan] = []
    refused: list[tuple[Plan, str]] = []
    with counting("running plans", progress) as told:
        for done, plan in enumerate(plans):
            told(done, len(plans))
            try:
                schedule = planner.schedule(plan, machine)
                predicted = runner.predict_seconds(plan, schedule, machines)
                rows.append(RankedPlan(plan, predicted, runner.measure_seconds(schedule)))
            except HloShardingError as error:
                refused.append((plan, str(error)))
    return Ranking.of(rows, refused, runner.name)


def sample_plans(num_devices: int, count: int, seed: int, microbatches: Sequence[int] = MICROBATCHES) -> list[Plan]:
    """So many of all plans for the devices, the same ones for a seed.

    >>> sample_plans(8, 3, seed=0) == sample_plans(8, 3, seed=0), len(sample_plans(2, 100, seed=0))
    (True, 9)
    """
    every = sorted(plan_space(num_devices, microbatches))
    return sorted(Random(seed).sample(every, min(count, len(every))))


def this_process() -> OneProcess:
    """The runner for the devices that JAX has here."""
    import jax

    devices = jax.devices()
    return OneProcess(tuple(devices), overlaps=devices[0].platform != "cpu")


def calibrate_busy(busy: int) -> Machine:
    """JAX's first devices, measured with so many of them at work."""
    import jax

    if busy > _num_devices():
        raise ScheduleError(f"a plan for {busy} devices, JAX has {_num_devices()}", remedy="take fewer")
    # Devices of their own do not care how many others work: all are measured, once.
    count = busy if jax.devices()[0].platform == "cpu" else _num_devices()
    return _calibrate(count).with_devices(busy)


@lru_cache
def _calibrate(count: int) -> Machine:
    import jax

    return calibrate(jax.devices()[:count])


def _num_devices() -> int:
    import jax

    return len(jax.devices())
