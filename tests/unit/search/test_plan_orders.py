"""Orders of the ways on the devices: who is whose neighbour, what that costs, and that results stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cost import group_placement, machines, permute_placement
from hlosharding.errors import ScheduleError
from hlosharding.schedule import StageProgram
from hlosharding.search import Plan, Planner, plan_space
from tests.support.training_steps import perceptron as step

LETTERS = "PDT"


def arguments(width: int = 16, rows: int = 32) -> tuple[Any, Any]:
    keys = jax.random.split(jax.random.key(0), 5)
    return [jax.random.normal(k, (width, width)) * 0.3 for k in keys[1:]], jax.random.normal(keys[0], (rows, width))


@pytest.mark.parametrize("order", Plan.ORDERS)
def test_devices_are_counted_through_the_ways_from_the_innermost(order: str) -> None:
    plan, sizes = Plan(3, 4, 2, order=order), {"P": 2, "D": 3, "T": 4}
    expected = np.arange(24).reshape([sizes[way] for way in order]).transpose([order.index(way) for way in LETTERS])
    assert plan.submeshes == [tuple(stage.ravel().tolist()) for stage in expected]


def test_each_plan_is_there_once_in_each_order_that_differs() -> None:
    every = list(plan_space(8, (2,), orders=Plan.ORDERS))
    assert len(set(every)) == len(every)
    lies = [(plan.data, plan.tensor, plan.stages, *plan.submeshes) for plan in every]
    assert len(set(lies)) == len(lies)
    counts = {plan: sum(way > 1 for way in (plan.data, plan.tensor, plan.stages)) for plan in plan_space(8, (2,))}
    assert len(every) == sum({1: 1, 2: 2, 3: 6}[number] for number in counts.values())


@pytest.mark.parametrize("order", ["PPD", "PT", "PDX", "pdt"])
def test_no_order(order: str) -> None:
    with pytest.raises(ScheduleError, match=r"is no order of 2/2/2; at plan 2/2/2/1 \w+; write P, D and T"):
        Plan(2, 2, 2, order=order)


@pytest.mark.parametrize("order", Plan.ORDERS)
def test_a_plan_in_any_order_computes_what_one_device_does(order: str, cpu_devices: list[Any]) -> None:
    weights, x = arguments()
    schedule = Planner(hs.trace(step)(weights, x), ["x"]).schedule(Plan(2, 2, 2, 4, order=order))
    schedule.verify(machines.h100(8))
    expected = jax.tree.leaves(jax.jit(step)(weights, x))
    for found in (schedule.run_reference(*weights, x), schedule.compile(cpu_devices)(*weights, x)):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("machine", [machines.h100(24), machines.tpu_v5p(16), machines.tpu_v5e(16)], ids=str)
@pytest.mark.parametrize("order", Plan.ORDERS)
def test_groups_of_a_part_stand_where_the_machine_has_its_devices(order: str, machine: Any) -> None:
    for devices in Plan(2, 4, 2, order=order).submeshes:
        groups = ((0, 1, 2, 3), (4, 5, 6, 7)), ((0, 4), (1, 5), (2, 6), (3, 7))
        pairs = tuple((n, (n + 1) % 8) for n in range(8))
        for within in groups:
            mapped = tuple(tuple(devices[n] for n in group) for group in within)
            assert group_placement(within, machine.among(devices)) == group_placement(mapped, machine)
        mapped_pairs = tuple((devices[s], devices[t]) for s, t in pairs)
        assert permute_placement(pairs, machine.among(devices)) == permute_placement(mapped_pairs, machine)


def test_tensors_split_across_nodes_pay_for_the_links_between() -> None:
    weights, x = arguments(width=512, rows=1024)
    planner, machine = Planner(hs.trace(step)(weights, x), ["x"]), machines.h100(16)
    near, far = (planner.schedule(Plan(2, 8, order=order), machine).simulate(machine) for order in ("", "TD"))
    assert far.time_s > near.time_s
    assert machine.among(Plan(2, 8).submeshes[0]) == machine
    one_node = machine.with_devices(8)
    same = [planner.schedule(Plan(2, 4, order=order), one_node).simulate(one_node).time_s for order in ("", "TD")]
    assert same[0] == same[1]


def test_stages_side_by_side_in_a_node_send_over_its_links() -> None:
    module, machine = hs.trace(step)(*arguments()), replace(machines.h100(16), nccl=None)  # latency and bytes alone
    for order, link in (("", machine.between), ("DP", machine.inside)):
        plan = Plan(8, 1, 2, 2, order=order)
        run = Planner(module, ["x"]).schedule(plan, machine).simulate(machine)
        sends = [done.work for done in run.recording.applications if done.work.is_communication]
        assert sends
        for sent in sends:
            assert sent.seconds == pytest.approx(machine.collective_launch + link.seconds(sent.received_bytes))


def test_the_best_order_of_all_is_found() -> None:
    weights, x = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((2048, 2048), (4096, 2048)))
    module, machine = hs.trace(step)([weights] * 4, x), machines.h100(16)

    def priced(*orders: str) -> dict[Any, float]:
        found = hs.search(module, batch=["x"], machine=machine, microbatches=(4,), orders=orders, keep=0, prune=False)
        return {each.plan: each.time_s for each in found.table}

    usual, every = priced(""), priced(*Plan.ORDERS)
    assert set(usual) < set(every)
    assert all(every[plan] == pytest.approx(seconds) for plan, seconds in usual.items())
    assert len({round(time, 12) for plan, time in every.items() if plan.order}) > 1


def test_on_one_switch_all_orders_are_alike() -> None:
    module = hs.trace(step)(*arguments())
    found = hs.search(module, batch=["x"], machine=machines.h100(8), microbatches=(4,), orders=Plan.ORDERS)
    assert not any(each.plan.order for each in found.table)


def test_programs_of_orders_that_are_joined_alike_are_made_once() -> None:
    module, machine = hs.trace(step)(*arguments()), machines.h100(8)
    planner = Planner(module, ["x"])
    cuts = [planner.pipeline(Plan(2, 2, 2, 4, order=order), machine) for order in Plan.ORDERS]
    programs = [[piece.op.program for piece in cut.pieces if isinstance(piece.op, StageProgram)] for cut in cuts]
    assert all(programs)
    assert all(one is other for made in programs[1:] for one, other in zip(programs[0], made, strict=True))
