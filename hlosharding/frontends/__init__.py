"""Programs in: HLO, StableHLO, JAX functions and lowerings become a `Module`; annotations by name or in place.

Floor: frontends.  The only rooms below are `ir` and `sharding`; nothing here knows propagation or devices at run time.
"""

from hlosharding.frontends.annotate import annotate, constrain, is_inserted
from hlosharding.frontends.jax import (
    MARKS,
    CustomPartitioning,
    PerDevice,
    TraceableFunction,
    TracedCall,
    are_on_several_devices,
    as_numbers,
    broadcast,
    divides,
    first_tracer,
    logical_to_mesh_sharding,
    may_not_communicate,
    mesh_context,
    no_communication,
    said_by_jax,
    shard_alike,
    trace,
    with_sharding,
)
from hlosharding.frontends.loading import ProgramReader, load, named_format
from hlosharding.frontends.prepare import prepare, prepare_edit
from hlosharding.frontends.shardy import to_sdy_text

__all__ = [
    "MARKS",
    "CustomPartitioning",
    "PerDevice",
    "ProgramReader",
    "TraceableFunction",
    "TracedCall",
    "annotate",
    "are_on_several_devices",
    "as_numbers",
    "broadcast",
    "constrain",
    "divides",
    "first_tracer",
    "is_inserted",
    "load",
    "logical_to_mesh_sharding",
    "may_not_communicate",
    "mesh_context",
    "named_format",
    "no_communication",
    "prepare",
    "prepare_edit",
    "said_by_jax",
    "shard_alike",
    "to_sdy_text",
    "trace",
    "with_sharding",
]
