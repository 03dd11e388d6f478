"""Programs in: HLO, StableHLO, JAX functions and lowerings become a `Module`; annotations by name or in place.

Floor: frontends.  The only rooms below are `ir` and `sharding`; nothing here knows propagation or devices at run time.
"""

from hlosharding.frontends.annotate import annotate
from hlosharding.frontends.jax import (
    CustomPartitioning,
    PerDevice,
    divides,
    is_one_array,
    shard_alike,
    trace,
    with_sharding,
)
from hlosharding.frontends.loading import load
from hlosharding.frontends.prepare import prepare

__all__ = [
    "CustomPartitioning",
    "PerDevice",
    "annotate",
    "divides",
    "is_one_array",
    "load",
    "prepare",
    "shard_alike",
    "trace",
    "with_sharding",
]
