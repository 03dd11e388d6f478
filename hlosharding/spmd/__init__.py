"""What a per-device program means: who takes part in a collective, who holds the same value, its laws, its ops."""

from hlosharding.spmd.collective import (
    CAUSE_ATTRIBUTE,
    Collective,
    collective_kind,
    collectives,
    device_count,
    module_of,
    read_collective,
)
from hlosharding.spmd.counted_loop import LoopNames, counted_loop
from hlosharding.spmd.emitter import Emitter, Groups, Owed, Program
from hlosharding.spmd.manual_groups import World, in_one_order, inside_of, pieces_of, strip, world_of, wrap
from hlosharding.spmd.masking import identity, inside, is_identity, mask_padding, only_first
from hlosharding.spmd.uniformity import Sameness, condition_of
from hlosharding.spmd.verifier import DivergenceError, guarded, verify_partitioned

__all__ = [
    "CAUSE_ATTRIBUTE",
    "Collective",
    "DivergenceError",
    "Emitter",
    "Groups",
    "LoopNames",
    "Owed",
    "Program",
    "Sameness",
    "World",
    "collective_kind",
    "collectives",
    "condition_of",
    "counted_loop",
    "device_count",
    "guarded",
    "identity",
    "in_one_order",
    "inside",
    "inside_of",
    "is_identity",
    "mask_padding",
    "module_of",
    "only_first",
    "pieces_of",
    "read_collective",
    "strip",
    "verify_partitioned",
    "world_of",
    "wrap",
]
