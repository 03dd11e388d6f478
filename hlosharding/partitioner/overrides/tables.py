"""The tables of shardings that a program may be partitioned with: propagation's, relaxed, and alternatives to it.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from hlosharding.ir import Module
from hlosharding.partitioner.overrides.batch_parallel import batch_parallel_shardings
from hlosharding.partitioner.overrides.kept_whole import kept_whole_shardings
from hlosharding.partitioner.overrides.op_sets import ProgramShardings, Proposer
from hlosharding.partitioner.overrides.open_results import evenly_split_results, named_results
from hlosharding.partitioner.overrides.relaxed_shardings import relaxed_shardings, wanted_by_only_readers
from hlosharding.partitioner.overrides.sharding_overrides import (
    BATCH_OVER_ALL,
    EVEN_PART,
    IN_PLACE,
    KEPT_WHOLE,
    NAMED,
    ONE_ORDER,
    ONLY_READER,
    SMALL_WHOLE,
)
from hlosharding.partitioner.overrides.small_whole import small_whole_shardings
from hlosharding.partitioner.overrides.written_in_place import written_in_place
from hlosharding.partitioner.prices import Prices
from hlosharding.sharding import HloSharding
from hlosharding.spmd import in_one_order


@dataclass(frozen=True, slots=True)
class ShardingTable:
    """A sharding for each instruction, by id; nothing for those that may take any."""

    shardings: Mapping[int, HloSharding]
    reasons: Mapping[int, str]
    """Why the table has another sharding than propagation, where it is not that nobody reads the value whole."""
    copies: Mapping[int, HloSharding] = field(default_factory=dict[int, HloSharding])
    """Where several readers find a copy of a value."""

    def changed(self, found: Mapping[int, HloSharding], reason: str) -> ShardingTable:
        """The same with other shardings for some."""
        return ShardingTable({**self.shardings, **found}, {**self.reasons, **dict.fromkeys(found, reason)}, self.copies)

    def opened(self, ids: Collection[int], reason: str) -> ShardingTable:
        """The same where these may take any sharding."""
        kept = {i: sharding for i, sharding in self.shardings.items() if i not in ids}
        return ShardingTable(kept, {**self.reasons, **dict.fromkeys(ids, reason)}, self.copies)


_REFINEMENTS: tuple[tuple[Proposer, str], ...] = (
    (evenly_split_results, EVEN_PART),
    (named_results, NAMED),
    (wanted_by_only_readers, ONLY_READER),
    (written_in_place, IN_PLACE),
)
"""Of propagation's own table, one on top of the other: taken unseen."""
_ALTERNATIVES: tuple[tuple[Proposer, str], ...] = (
    (batch_parallel_shardings, BATCH_OVER_ALL),
    (kept_whole_shardings, KEPT_WHOLE),
    (small_whole_shardings, SMALL_WHOLE),
)
"""Beside it: each costs a walk, and is taken if its program is better."""


def has_manual_groups(module: Module) -> bool:
    """Does any value have manual groups: is some of the program manual over some of the mesh axes?"""
    return any(leaf.is_manual_subgroup() for s in module.distinct_shardings for leaf in s.leaves)


def propagated_table(module: Module, annotated: frozenset[str], num_partitions: int, prices: Prices) -> ShardingTable:
    """Propagation's own, relaxed.  `annotated`: names that keep their sharding."""
    relaxed = relaxed_shardings(module, annotated)
    if has_manual_groups(module):
        # Ops of a group are written once for all groups, so that their tiles have to lie in one order; XLA's
        # propagation leaves some in another.
        ordered = {i: in_one_order(sharding) for i, sharding in relaxed.items()}
        return ShardingTable(ordered, {i: ONE_ORDER for i, s in relaxed.items() if ordered[i] is not s})
    own = ShardingTable(relaxed, {})
    for propose, reason in _REFINEMENTS:
        own = own.changed(propose(ProgramShardings(module, own.shardings, annotated, num_partitions, prices)), reason)
    return own


def unrelaxed_table(program: ProgramShardings, own: ShardingTable, found: Mapping[int, HloSharding]) -> ShardingTable:
    """Propagation's own, where values that nobody reads whole are whole all the same; `own`, if all of them are.

    What a device then makes of others' parts it need not be sent: small tables are summed once, and then read by all.
    `found`: how values came to lie, by id, that `own` leaves open.
    """
    lies = {**found, **own.shardings}
    whole = {
        number: given
        for number, given in program.module.shardings.items()
        if number not in own.reasons and given.kind == "replicated" and lies.get(number) is not given
    }
    if not whole or has_manual_groups(program.module):
        return own
    return ShardingTable({**own.shardings, **whole}, own.reasons)


def other_tables(program: ProgramShardings, own: ShardingTable) -> Iterator[ShardingTable]:
    """Those worth trying beside propagation's own, whose program is known."""
    if has_manual_groups(program.module):
        return
    for propose, reason in _ALTERNATIVES:
        if found := propose(program):
            yield own.changed(found, reason)
