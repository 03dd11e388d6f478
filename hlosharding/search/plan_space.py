"""Which plans there are for a number of devices.

Floor: search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from itertools import product
from typing import Any

from hlosharding.cost import Machine
from hlosharding.errors import ScheduleError, is_count
from hlosharding.search.plans import Plan

MICROBATCHES = (2, 4, 8, 16, 32, 64, 128)
"""Those of the DistIR paper's grid: with fewer a pipeline idles, more leave too little for a kernel."""


def divisors(number: int) -> list[int]:
    """All of them, in rising order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [n for n in range(1, number + 1) if number % n == 0]


def plan_space(
    num_devices: int,
    microbatches: Sequence[int] = MICROBATCHES,
    schedules: Sequence[str] = ("",),
    orders: Sequence[str] = ("",),
    strategies: Iterable[str] = ("",),
    replicas: Sequence[int] = (1,),
    context: Sequence[int] = (1,),
    experts: Sequence[int] = (1,),
    sequence: Sequence[bool] = (False,),
    recompute: Sequence[bool] = (False,),
) -> Iterator[Plan]:
    """Every factorisation of the devices into data, tensor and pipeline, in each order that is another for it, by each
    strategy; of the data ways as many replicas, parts of sequences and of the experts, where these divide them; with
    tensor ways with and without sequence parallelism, if both are asked for, and with and without recomputation;
    pipelines with each number of microbatches
    and each schedule.  Raises ScheduleError for no order.

    >>> len(list(plan_space(16)))  # the DistIR paper's grid
    75
    >>> [str(plan) for plan in plan_space(2, (4,), ("1f1b", "zb-h1"))]
    ['1/1/2/4 1f1b', '1/1/2/4 zb-h1', '1/2/1/1', '2/1/1/1']
    >>> [str(plan) for plan in plan_space(4, (4,), orders=("", "TDP")) if plan.stages < 4]
    ['1/2/2/4', '1/2/2/4 TP', '1/4/1/1', '2/1/2/4', '2/1/2/4 DP', '2/2/1/1', '2/2/1/1 TD', '4/1/1/1']
    >>> [str(plan) for plan in plan_space(4, strategies=["fsdp"], replicas=(1, 2)) if plan.stages == 1]
    ['1/4/1/1 fsdp', '2/2/1/1 fsdp', '2/2/1/1 fsdp replicas=2', '4/1/1/1 fsdp', '4/1/1/1 fsdp replicas=2']
    >>> [str(plan) for plan in plan_space(2, sequence=(False, True)) if plan.stages == 1]
    ['1/2/1/1', '1/2/1/1 sequence', '2/1/1/1']
    """
    parts = list(product(replicas, context, experts))
    if not all(map(is_count, (*replicas, *context, *experts))):
        raise ScheduleError("replicas, context and experts are counted from 1", remedy="leave out what is less")
    for data, tensor in product(divisors(num_devices), repeat=2):
        stages, rest = divmod(num_devices, data * tensor)
        if not stages or rest:
            continue
        ways = Plan(data, tensor, stages)
        found = dict.fromkeys(replace(ways, order=order).shortest_order for order in orders)
        counts = product(microbatches, schedules) if stages > 1 else [(1, "")]
        fitting = [sizes for sizes in parts if data % math.prod(sizes) == 0]
        along = sequence if tensor > 1 else (False,)
        words = product(counts, found, strategies, fitting, along, recompute)
        for (count, schedule), order, strategy, sizes, split, again in words:
            yield Plan(data, tensor, stages, count, schedule, order, strategy, *sizes, split, recompute=again)


def find_said(asked: Mapping[str, Any]) -> list[str]:
    """Of what may be asked of `plan_space` the names of what is not as it is by default.

    >>> find_said({"microbatches": MICROBATCHES, "replicas": [1, 2]})
    ['replicas']
    """
    usual = signature(plan_space).parameters
    return [name for name, said in asked.items() if tuple(said) != tuple(usual[name].default)]


def choose_plans(machine: Machine, given: Iterable[Plan] | None, **asked: Any) -> list[Plan]:
    """Those that are given, else what is `asked` of `plan_space` for all devices of a machine.

    Raises ScheduleError for plans that need more devices, for what is asked beside plans, which say all, and where
    nothing that is asked for divides the devices.
    """
    if given is None:
        if machine.topology == "switch" and machine.num_nodes == 1:
            asked["orders"] = ("",)  # whoever is next to whom
        if plans := list(plan_space(machine.num_devices, **asked)):
            return plans
        raise ScheduleError(
            f"no plan could be priced: {machine.num_devices} devices cannot be divided by what is asked for",
            where=", ".join(f"{name} {list(asked[name])}" for name in find_said(asked)),
            remedy="ask for numbers that divide the devices",
        )
    for name in find_said(asked):
        if not isinstance(asked[name], Mapping):
            raise ScheduleError(f"{name} are said, and plans, which say all", remedy="leave out one of the two")
    plans = list(given)
    for plan in plans:
        if plan.num_devices > machine.num_devices:
            what = f"plan {plan} is for {plan.num_devices} devices, {machine.name} has {machine.num_devices}"
            raise ScheduleError(what, remedy="take fewer ways, or a larger machine")
    return plans
