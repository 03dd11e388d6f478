"""Partitioning along an axis of time: microbatches are never exchanged, sums of them cost nothing.

Floor: schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlosharding.cost import machines
from hlosharding.ir import Module, Shape
from hlosharding.partitioner import (
    Cost,
    Decisions,
    Prices,
    has_manual_groups,
    in_plain_forms,
    partition_module,
    sharding_tables,
)
from hlosharding.propagation import Propagation
from hlosharding.sharding import HloSharding, without_partials

_NEVER = Cost(1e30, 1e30)
_SUM = Cost(1.0, 1e-9)
"""Little, so that what needs no sum at all is taken first."""


@dataclass(slots=True)
class TimePrices(Prices):
    """Prices of what is one after the other: a sum is made on the way, anything else would need what is to come."""

    def _planned(self, shape: Shape, source: HloSharding, target: HloSharding, reduce_kind: str | None) -> Cost:
        whole = without_partials(source)
        if whole is not source:
            return _SUM if target == whole else _NEVER
        found = Prices._planned(self, shape, source, target, reduce_kind)
        return _NEVER if found.mean_bytes else found


def partition_over_time(propagation: Propagation, count: int) -> Module:
    """The program of one of `count` microbatches, its sums over them as all-reduces."""
    module = in_plain_forms(propagation.module)
    prices = TimePrices(machines.h100(count), "bytes")
    decisions = Decisions(prices, has_manual_groups=has_manual_groups(module), annotated=propagation.annotated)
    table = next(sharding_tables(module, propagation.annotated, count, prices))
    return partition_module(module, table, decisions, num_partitions=count).module
