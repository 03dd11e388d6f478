"""Other shardings than propagation's, where nobody is bound to those, and the list of them."""

from hlosharding.partitioner.overrides.batch_parallel import batch_parallel_shardings
from hlosharding.partitioner.overrides.relaxed_shardings import relaxed_shardings
from hlosharding.partitioner.overrides.sharding_overrides import (
    BATCH_OVER_ALL,
    ONE_ORDER,
    ShardingOverride,
    sharding_overrides,
)

__all__ = [
    "BATCH_OVER_ALL",
    "ONE_ORDER",
    "ShardingOverride",
    "batch_parallel_shardings",
    "relaxed_shardings",
    "sharding_overrides",
]
