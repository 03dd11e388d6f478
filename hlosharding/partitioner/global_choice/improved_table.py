"""A table of shardings with other places for values between ops, where those save something.

Floor: partitioner.
"""

from __future__ import annotations

from hlosharding.ir import Module
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.global_choice.between_ops import cheaper_between_ops
from hlosharding.partitioner.overrides import BOTH_ENDS, ShardingTable


def improved_table(module: Module, table: ShardingTable, decisions: Decisions) -> ShardingTable:
    """The table with other shardings for values between ops; itself where none would save anything."""
    if decisions.has_manual_groups:
        return table
    changed, copies = cheaper_between_ops(module, table.shardings, decisions)
    if not changed and not copies:
        return table
    reasons = {**table.reasons, **dict.fromkeys(changed, BOTH_ENDS)}
    return ShardingTable({**table.shardings, **changed}, reasons, copies)
