"""Programs in: HLO, StableHLO, JAX functions and lowerings become a `Module`; annotations are put on by name or in place.

Floor: frontends.  The only rooms below are `ir` and `sharding`; nothing here knows propagation or devices at run time.
"""

from hlosharding.frontends.jax_function import trace
from hlosharding.frontends.loading import load
from hlosharding.frontends.prepare import prepare
from hlosharding.frontends.signature import Signature

__all__ = ["Signature", "load", "prepare", "trace"]
