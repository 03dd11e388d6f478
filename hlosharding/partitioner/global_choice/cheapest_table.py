"""Which of several tables of shardings a program is built with, told before it is built.

Floor: partitioner.  An op whose operands and results have the same shardings under all tables costs the same under all,
and is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hlosharding.ir import Instruction, Module
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.global_choice.op_kinds import OpKinds, Situation
from hlosharding.partitioner.global_choice.priced_walk import PricedWalk, context_to_decide_in
from hlosharding.partitioner.overrides import ShardingTable
from hlosharding.partitioner.prices import Cost
from hlosharding.sharding import HloSharding

# Of what the first table costs: another one must promise so much less.
_LESS = 0.05


def cheapest_table(
    module: Module, tables: Sequence[ShardingTable], decisions: Decisions, num_partitions: int, kinds: OpKinds
) -> ShardingTable:
    """The first, unless another costs clearly less: bytes, or seconds where the objective is time."""
    first, *others = tables
    pairs = [costs_where_they_differ(module, first, other, decisions, num_partitions, kinds) for other in others]
    prices = [[_price(cost, decisions) for cost in pair] for pair in pairs]
    asked = max((mine for mine, _ in prices), default=0.0)
    saved = [mine - theirs for mine, theirs in prices]
    best = max(range(len(others)), key=saved.__getitem__, default=None)
    return first if best is None or saved[best] <= _LESS * asked else others[best]


def _price(cost: Cost, decisions: Decisions) -> float:
    return cost.seconds if decisions.prices.objective == "time" else cost.mean_bytes


def costs_where_they_differ(
    module: Module,
    first: ShardingTable,
    other: ShardingTable,
    decisions: Decisions,
    num_partitions: int,
    kinds: OpKinds,
) -> tuple[Cost, Cost]:
    """What is received under either, and how long it takes, in the ops of the entry that the two tell apart."""
    told_apart, quiet = list(_told_apart(module, first.shardings, other.shardings)), set[Situation]()

    def cost(table: ShardingTable) -> Cost:
        context = context_to_decide_in(module, table.shardings, decisions, num_partitions)
        walk = PricedWalk(context, stands_for=module.stands_for)
        for inst in told_apart:
            if walk.is_at_rest(inst):
                continue
            situation = kinds.situation(inst, table.shardings)
            if situation in quiet and not walk.has_deferred(inst):
                continue
            if walk.visit(inst):
                quiet.add(situation)
        walk.finish()
        return walk.cost

    return cost(first), cost(other)


def _told_apart(
    module: Module, first: Mapping[int, HloSharding], other: Mapping[int, HloSharding]
) -> Iterator[Instruction]:
    differing = {i for i, sharding in first.items() if other.get(i) is not sharding} | (other.keys() - first.keys())
    for inst in module.entry.instructions:
        if inst.id in differing or not differing.isdisjoint([o.id for o in inst.operands]):
            yield inst
