"""Plans are run and compared with their prices; what is refused is listed, whoever runs them can be changed."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import Machine, machines
from hlosharding.errors import ScheduleError
from hlosharding.schedule import Schedule, StageProgram
from hlosharding.schedule.steps import Apply
from hlosharding.search import OneProcess, Plan, Planner, RankedPlan, Ranking, plan_space, sample_plans
from tests.support.training_steps import perceptron as step


def arguments() -> tuple[Any, Any]:
    return [jnp.full((16, 16), 0.1)] * 4, jnp.ones((32, 16))


class Fake:
    """Says what it is told instead of running."""

    name = "fake"

    def __init__(self, measured: dict[Plan, float]) -> None:
        self.seconds, self.now = measured, Plan()

    def predict_seconds(self, plan: Plan, schedule: Schedule, machines: Any) -> float:
        self.now = plan
        return float(plan.num_devices)

    def measure_seconds(self, schedule: Schedule) -> float:
        return self.seconds[self.now]


def test_a_runner_of_ones_own() -> None:
    plans = {Plan(2): 3.0, Plan(4): 1.0, Plan(8): 2.0}
    found = hs.rank(step, *arguments(), batch=["x"], plans=plans, runner=Fake(plans), machine=machines.h100(8))
    assert found.table == (
        RankedPlan(Plan(4), 4.0, 1.0),
        RankedPlan(Plan(8), 8.0, 2.0),
        RankedPlan(Plan(2), 2.0, 3.0),
    )
    assert (found.best, found.runner, found.regret, found.spearman) == (Plan(4), "fake", 2.0, -0.5)
    assert [(each.first, each.second) for each in found.inversions] == [(2, 0), (2, 1)]


def test_what_the_program_does_not_allow_is_listed_with_the_reason() -> None:
    plans = [Plan(2), Plan(3), Plan(1, 1, 2, 64)]
    runner = Fake(dict.fromkeys(plans, 1.0))
    found = hs.rank(step, *arguments(), batch=["x"], plans=plans, runner=runner, machine=machines.h100(8))
    assert [row.plan for row in found.table] == [Plan(2)]
    reasons = dict(found.refused)
    assert "not cut into 1 microbatches, each 3 ways" in reasons[Plan(3)]
    assert "not cut into 64 microbatches" in reasons[Plan(1, 1, 2, 64)]


def test_plans_on_cpu_devices(cpu_devices: list[Any]) -> None:
    plans = [Plan(), Plan(2, 2), Plan(2, 1, 2, 2), Plan(1, 2, 2, 4)]
    runner = OneProcess(cpu_devices, overlaps=False, seconds=0.01)
    found = hs.rank(step, *arguments(), batch=["x"], plans=plans, runner=runner, machine=machines.cpu(4))
    assert sorted(row.plan for row in found.table) == sorted(plans)
    assert all(row.predicted_s > 0 and row.measured_s > 0 for row in found.table)
    assert found.runner == "one process, one program at a time"
    assert set(found.spearman_by_stages) == {1, 2}


def test_stages_one_after_the_other_take_longer_than_side_by_side() -> None:
    plan, machine = Plan(1, 1, 4, 8), machines.h100(4)
    schedule = Planner(hs.trace(step)(*arguments()), ["x"]).schedule(plan, machine)

    def machine_of(busy: int) -> Machine:
        return machine.with_devices(busy)

    apart = OneProcess((), overlaps=True).predict_seconds(plan, schedule, machine_of)
    in_turn = OneProcess((), overlaps=False).predict_seconds(plan, schedule, machine_of)
    assert apart == pytest.approx(schedule.simulate(machine).time_s)
    assert in_turn > 2 * apart


def test_the_machine_is_asked_for_as_many_devices_as_work_at_once() -> None:
    plan, asked = Plan(2, 1, 2, 2), list[int]()
    schedule = Planner(hs.trace(step)(*arguments()), ["x"]).schedule(plan)

    def machine_of(busy: int) -> Machine:
        asked.append(busy)
        return machines.cpu(busy)

    OneProcess((), overlaps=False).predict_seconds(plan, schedule, machine_of)
    OneProcess((), overlaps=True).predict_seconds(plan, schedule, machine_of)
    assert asked == [2, 4]


def test_plans_are_drawn_by_a_seed() -> None:
    every = sorted(plan_space(8))
    assert sample_plans(8, 1000, seed=3) == every
    assert sample_plans(8, 5, seed=3) == sample_plans(8, 5, seed=3) != sample_plans(8, 5, seed=4)
    assert set(sample_plans(8, 5, seed=3)) <= set(every)


def test_an_argument_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="no argument 'tokens'; there are weights"):
        hs.rank(step, *arguments(), batch=["tokens"], plans=[Plan()], machine=machines.cpu(1))


def test_none_could_be_run() -> None:
    with pytest.raises(ScheduleError, match="no plan could be run"):
        _ = Ranking.of([]).best
    refused = Ranking.of([], [(Plan(2), "the batch is not cut")])
    assert str(refused) == "no plan could be run; 1 of 1 refused: the batch is not cut"


@pytest.mark.parametrize("donate", [(), ("weights",)])
def test_the_best_of_a_search_are_run_as_they_were_priced(donate: tuple[str, ...], monkeypatch: Any) -> None:
    found = hs.search(step, *arguments(), batch=["x"], machine=machines.cpu(2), microbatches=(2,), donate=donate)
    donating = list[bool]()
    measured = OneProcess.measure_seconds

    def noted(self: OneProcess, schedule: Schedule) -> float:
        ops = [each.op for each in schedule.steps() if isinstance(each, Apply)]
        donating.append(any(op.donates for op in ops if isinstance(op, StageProgram)))
        return measured(self, schedule)

    monkeypatch.setattr(OneProcess, "measure_seconds", noted)
    ranking = found.measured(most=2)
    assert {row.plan for row in ranking.table} == {priced.plan for priced in found.table[:2]}
    assert donating == [bool(donate)] * 2
