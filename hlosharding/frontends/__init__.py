"""Programs in: HLO, StableHLO, JAX functions and lowerings become a `Module`; annotations by name or in place.

Floor: frontends.  The only rooms below are `ir` and `sharding`; nothing here knows propagation or devices at run time.
"""

from hlosharding.frontends.annotate import annotate
from hlosharding.frontends.boundary import divides
from hlosharding.frontends.constraints import shard_alike, with_sharding
from hlosharding.frontends.custom_partitioning import CustomPartitioning, PerDevice
from hlosharding.frontends.jax_function import trace
from hlosharding.frontends.leaves import is_one_array
from hlosharding.frontends.loading import load
from hlosharding.frontends.prepare import prepare
from hlosharding.frontends.signature import Signature

__all__ = [
    "CustomPartitioning",
    "PerDevice",
    "Signature",
    "annotate",
    "divides",
    "is_one_array",
    "load",
    "prepare",
    "shard_alike",
    "trace",
    "with_sharding",
]
