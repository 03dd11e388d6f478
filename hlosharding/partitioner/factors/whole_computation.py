"""The last resort: every device computes the op on whole operands.

Floor: partitioner.
"""

from __future__ import annotations

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.region_values import pack, unpack, value_of
from hlosharding.partitioner.resharding import replicate, to_wanted
from hlosharding.partitioner.value import AnyValue, from_leaves, leaves_of, map_leaves
from hlosharding.sharding import REPLICATED


def compute_whole(context: Context, inst: Instruction, why: str) -> AnyValue:
    """The last resort: every device computes the op on whole operands.  Said aloud when it costs anything."""
    warn_of_gathers(context, inst, why)
    moved = [map_leaves(value_of(context, o), lambda v: replicate(context, v)) for o in inst.operands]
    local = context.emitter.local(inst, inst.shape, [pack(context, m) for m in moved])
    whole = unpack(context, local, inst.shape, [REPLICATED] * len(inst.shape.leaves))
    wanted = context.wanted_leaves(inst)
    return from_leaves(inst.shape, [to_wanted(context, v, w) for v, w in zip(leaves_of(whole), wanted, strict=True)])


def warn_of_gathers(context: Context, inst: Instruction, why: str) -> None:
    """Say that an op takes whole operands, and what that gathers; nothing where it gathers nothing."""
    cost = sum(
        leaf.shape.byte_size
        for o in inst.operands
        for leaf in leaves_of(value_of(context, o))
        if leaf.sharding is not REPLICATED
    )
    if cost:
        name = f"{inst.opcode} {inst.custom_call_target}".strip()
        context.emitter.program.warnings.append(
            f"{name} at {inst.location or '%' + inst.name} is not partitioned: {why}; replicated, gathers {cost} bytes"
        )
