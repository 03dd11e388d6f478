"""What is no count, no machine or no shape is refused where it is given, in words, by every call that takes one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs

TEXT = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = f32[8,4] negate(x)
}"""
ROWS, COLUMNS = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"
SHAPES = jax.ShapeDtypeStruct((8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 8), jnp.float32)


def step(w: jax.Array, x: jax.Array) -> jax.Array:
    return w - jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)


def search(**options: Any) -> hs.SearchResult:
    said: dict[str, Any] = {"machine": hs.machines.h100(2), "progress": False, **options}
    return hs.search(step, *SHAPES, **said)


COUNTS: dict[str, Callable[[Any], Any]] = {
    "search jobs": lambda n: search(jobs=n),
    "search replicas": lambda n: search(replicas=[n]),
    "rank count": lambda n: hs.rank(step, *SHAPES, batch=["x"], count=n, progress=False),
    "suggest most": lambda n: hs.suggest(hs.load(TEXT), most=n, progress=False),
    "suggest at_once": lambda n: hs.suggest(hs.load(TEXT), at_once=n, progress=False),
    "suggest num_partitions": lambda n: hs.suggest(hs.load(TEXT), num_partitions=n, progress=False),
    "partition num_partitions": lambda n: hs.partition(hs.load(TEXT), num_partitions=n),
    "reshard num_devices": lambda n: hs.plan_reshard((8, 8), "f32", ROWS, COLUMNS, num_devices=n),
    "a preset's devices": hs.machines.h100,
    "plan": hs.Plan,
    "pipeline stages": lambda n: hs.pipelined(hs.trace(step)(*SHAPES), batch=["x"], stages=n),
    "pipeline microbatches": lambda n: hs.pipelined(hs.trace(step)(*SHAPES), batch=["x"], stages=1, microbatches=n),
    "pipeline devices": lambda n: hs.pipelined(hs.trace(step)(*SHAPES), batch=["x"], stages=1, devices_per_stage=n),
}


@pytest.mark.parametrize("count", [0, -1, 1.5, float("nan"), "2"])
@pytest.mark.parametrize("call", COUNTS)
def test_what_is_no_count_is_refused_by_name(call: str, count: Any) -> None:
    with pytest.raises(
        hs.HloShardingError, match="counted from 1" if call == "search replicas" else re.escape(str(count))
    ):
        COUNTS[call](count)


@pytest.mark.parametrize("keep", [-1, 1.5, float("nan"), "2"])
def test_no_fewer_plans_than_none_are_kept(keep: Any) -> None:
    with pytest.raises(hs.ScheduleError, match=rf"keep={keep} is no number of plans; take 0 or more"):
        search(keep=keep)


def test_more_microbatches_than_can_be_divided_by_leave_the_plan_out() -> None:
    found = search(plans=[hs.Plan(2), hs.Plan(1, 1, 2, 10**18)])
    assert [str(row.plan) for row in found.table] == ["2/1/1/1"]


MACHINES: dict[str, Callable[[Any], Any]] = {
    "cost": lambda machine: hs.cost(hs.load(TEXT), machine),
    "simulate": lambda machine: hs.simulate(hs.load(TEXT), machine),
    "partition": lambda machine: hs.partition(hs.load(TEXT), machine=machine),
    "report": lambda machine: hs.report(hs.load(TEXT), machine=machine),
    "diff": lambda machine: hs.diff(hs.load(TEXT), hs.load(TEXT), machine=machine),
    "search": lambda machine: search(machine=machine),
    "rank": lambda machine: hs.rank(step, *SHAPES, batch=["x"], machine=machine, progress=False),
    "suggest": lambda machine: hs.suggest(hs.load(TEXT), machine=machine, progress=False),
    "find_optimum": lambda machine: hs.find_optimum(hs.trace(step)(*SHAPES), machine, {"x": 2}),
    "plan_reshard": lambda machine: hs.plan_reshard((8, 8), "f32", ROWS, COLUMNS, machine=machine),
    "pipelined": lambda machine: hs.pipelined(hs.trace(step)(*SHAPES), batch=["x"], stages=1, machine=machine),
}


@pytest.mark.parametrize("call", MACHINES)
def test_the_name_of_a_machine_is_no_machine(call: str) -> None:
    with pytest.raises(hs.CostError, match=r"'h100' is no machine; give one with its devices, as hs\.machines\.h100"):
        MACHINES[call]("h100")


@pytest.mark.parametrize("option", [{"machine": hs.machines.h100(2)}, {"num_partitions": 2}])
def test_a_report_does_not_partition_again(option: dict[str, Any]) -> None:
    made = hs.partition(hs.load(TEXT))
    with pytest.raises(hs.PartitionError, match=r"partitioned already, for .*; leave out machine and num_partitions"):
        hs.report(made, **option)


@pytest.mark.parametrize("dims", [(-8, 8), (1.5, 8)])
def test_what_is_no_shape_is_neither_drawn_nor_moved(dims: Any) -> None:
    with pytest.raises(hs.ShardingError, match="is no shape of an array; give the global size of every dim"):
        hs.draw(ROWS, dims)
    with pytest.raises(hs.PartitionError, match="is no shape of an array; give the global size of every dim"):
        hs.plan_reshard(dims, "f32", ROWS, COLUMNS)
