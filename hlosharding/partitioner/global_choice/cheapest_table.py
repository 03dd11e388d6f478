"""Which of several tables of shardings a program is built with, told before it is built.

Floor: partitioner.  An op whose operands and results have the same shardings under all tables costs the same under all,
and is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlosharding.ir import Module
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.global_choice.priced_walk import PricedWalk, context_to_decide_in
from hlosharding.partitioner.overrides import ShardingTable
from hlosharding.partitioner.prices import Cost
from hlosharding.sharding import HloSharding

# Of what the first table costs: another one must promise so much less.
_LESS = 0.95


def cheapest_table(
    module: Module, tables: Sequence[ShardingTable], decisions: Decisions, num_partitions: int
) -> ShardingTable:
    """The first, unless another costs clearly less: bytes, or seconds where the objective is time."""
    if len(tables) == 1:
        return tables[0]
    is_time = decisions.prices.objective == "time"
    found = costs_where_they_differ(module, tables, decisions, num_partitions)
    prices = [cost.seconds if is_time else cost.mean_bytes for cost in found]
    best = min(range(len(tables)), key=prices.__getitem__)
    return tables[best] if prices[best] < _LESS * prices[0] else tables[0]


def costs_where_they_differ(
    module: Module, tables: Sequence[ShardingTable], decisions: Decisions, num_partitions: int
) -> list[Cost]:
    """Per table what is received, and how long it takes, in the ops of the entry that the tables tell apart."""
    differing = _differing(module, [table.shardings for table in tables])
    found: list[Cost] = []
    for table in tables:
        walk = PricedWalk(context_to_decide_in(module, table.shardings, decisions, num_partitions))
        for inst in module.entry.instructions:
            is_told_apart = inst.id in differing or not differing.isdisjoint([o.id for o in inst.operands])
            if is_told_apart and not walk.is_at_rest(inst):
                walk.visit(inst)
        walk.finish()
        found.append(walk.cost)
    return found


def _differing(module: Module, tables: Sequence[Mapping[int, HloSharding]]) -> set[int]:
    first, *others = tables
    return {i.id for i in module.entry.instructions if any(t.get(i.id) is not first.get(i.id) for t in others)}
