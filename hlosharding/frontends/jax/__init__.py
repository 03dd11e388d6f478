"""JAX functions and lowerings to a Module; shardings on values inside traced functions."""

from hlosharding.frontends.jax.boundary import broadcast, divides, said_by_jax
from hlosharding.frontends.jax.constraints import (
    MARKS,
    may_not_communicate,
    no_communication,
    shard_alike,
    with_sharding,
)
from hlosharding.frontends.jax.custom_partitioning import CustomPartitioning, PerDevice
from hlosharding.frontends.jax.logical_axes import logical_to_mesh_sharding
from hlosharding.frontends.jax.lowered import from_compiled, from_lowered
from hlosharding.frontends.jax.signature import are_on_several_devices, as_numbers, first_tracer
from hlosharding.frontends.jax.tracing import TraceableFunction, TracedCall, mesh_context, trace

__all__ = [
    "MARKS",
    "CustomPartitioning",
    "PerDevice",
    "TraceableFunction",
    "TracedCall",
    "are_on_several_devices",
    "as_numbers",
    "broadcast",
    "divides",
    "first_tracer",
    "from_compiled",
    "from_lowered",
    "logical_to_mesh_sharding",
    "may_not_communicate",
    "mesh_context",
    "no_communication",
    "said_by_jax",
    "shard_alike",
    "trace",
    "with_sharding",
]
