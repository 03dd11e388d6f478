"""Partitioning along an axis of time: microbatches are never exchanged, sums of them cost nothing.

Floor: schedule.
"""

from __future__ import annotations

from hlosharding.cost import machines
from hlosharding.ir import Module
from hlosharding.partitioner import (
    Cost,
    Decisions,
    Prices,
    cost_of_plan,
    has_manual_groups,
    in_plain_forms,
    partition_module,
    propagated_table,
)
from hlosharding.propagation import Propagation
from hlosharding.reshard import ReshardRequest
from hlosharding.sharding import without_partials

_NEVER = Cost(1e30, 1e30)
_SUM = Cost(1.0, 1e-9)
"""Little, so that what needs no sum at all is taken first."""


def _cost_over_time(request: ReshardRequest) -> Cost:
    """A sum is made on the way; anything else would need what is to come."""
    whole = without_partials(request.source)
    if whole is not request.source:
        return _SUM if request.target == whole else _NEVER
    found = cost_of_plan(request)
    # Without bytes each microbatch takes its own part of what all have: that is no exchange.
    return _NEVER if found.mean_bytes else found


def partition_over_time(propagation: Propagation, count: int) -> Module:
    """The program of one of `count` microbatches, its sums over them as all-reduces."""
    module = in_plain_forms(propagation.module)
    prices = Prices(machines.h100(count), "bytes", cost_of_reshard=_cost_over_time)
    decisions = Decisions(prices, has_manual_groups=has_manual_groups(module), annotated=propagation.annotated)
    table = propagated_table(module, propagation.annotated, count, prices)
    return partition_module(module, table, decisions, num_partitions=count).module
