"""What an op is on one device's tiles: one table, and the emissions that are more than the same op on local shapes."""

from hlosharding.partitioner.local_ops.custom_reduction import combined
from hlosharding.partitioner.local_ops.local_op import LocalOp, as_index
from hlosharding.partitioner.local_ops.local_rules import LOCAL_RULES, LocalRule, custom_reduction_of, local_rule
from hlosharding.partitioner.local_ops.window_plans import HaloPlan
from hlosharding.partitioner.local_ops.windowed_ops import WindowedFactors, reversed_taps_dims

__all__ = [
    "LOCAL_RULES",
    "HaloPlan",
    "LocalOp",
    "LocalRule",
    "WindowedFactors",
    "as_index",
    "combined",
    "custom_reduction_of",
    "local_rule",
    "reversed_taps_dims",
]
