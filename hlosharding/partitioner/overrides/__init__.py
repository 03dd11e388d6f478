"""Other shardings than propagation's, where nobody is bound to those, and the list of them."""

from hlosharding.partitioner.overrides.op_sets import BINDING, ProgramShardings
from hlosharding.partitioner.overrides.sharding_overrides import (
    BOTH_ENDS,
    ShardingOverride,
    bypassed_annotations,
    sharding_overrides,
)
from hlosharding.partitioner.overrides.tables import (
    ShardingTable,
    has_manual_groups,
    other_tables,
    propagated_table,
    unrelaxed_table,
)

__all__ = [
    "BINDING",
    "BOTH_ENDS",
    "ProgramShardings",
    "ShardingOverride",
    "ShardingTable",
    "bypassed_annotations",
    "has_manual_groups",
    "other_tables",
    "propagated_table",
    "sharding_overrides",
    "unrelaxed_table",
]
