"""Sums over devices that wait: which ops partial sums pass through, when waiting pays, and what a loop accumulates."""

from hlosharding.partitioner.partial_sums.deferred_reductions import (
    Paths,
    accumulators,
    deferred_sums,
    is_awaited,
    is_wanted_partial,
    may_accumulate,
    may_wait,
    only_stacks,
    pass_through,
    waiting_pays,
)
from hlosharding.partitioner.partial_sums.partial_sum_ops import (
    DEFERRAL_RULES,
    deferral_rule,
    linear_operands,
    sums_over_some,
)

__all__ = [
    "DEFERRAL_RULES",
    "Paths",
    "accumulators",
    "deferral_rule",
    "deferred_sums",
    "is_awaited",
    "is_wanted_partial",
    "linear_operands",
    "may_accumulate",
    "may_wait",
    "only_stacks",
    "pass_through",
    "sums_over_some",
    "waiting_pays",
]
