"""The table of shardings that a program is built with.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.ir import Module
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.global_choice.between_ops import cheaper_between_ops
from hlosharding.partitioner.global_choice.cheapest_table import cheapest_table
from hlosharding.partitioner.global_choice.op_kinds import OpKinds
from hlosharding.partitioner.overrides import BOTH_ENDS, ShardingTable


def best_table(
    module: Module, tables: Sequence[ShardingTable], decisions: Decisions, num_partitions: int
) -> ShardingTable:
    """The cheapest of the tables, with other shardings for values between ops where those save something."""
    kinds = OpKinds()
    table = cheapest_table(module, tables, decisions, num_partitions, kinds)
    if decisions.has_manual_groups:
        return table
    changed, copies = cheaper_between_ops(module, table.shardings, decisions, num_partitions, kinds)
    if not changed and not copies:
        return table
    reasons = {**table.reasons, **dict.fromkeys(changed, BOTH_ENDS)}
    return ShardingTable({**table.shardings, **changed}, reasons, copies)
