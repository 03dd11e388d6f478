"""Ops on whole operands, which every device computes: the last resort, and arrays whose size only the run knows.

Floor: partitioner.  A tile of an array of dynamic size would hold elements past its end as if they were data: such an
array, and what reads it, is whole.
"""

from __future__ import annotations

from hlosharding.errors import PartitionError
from hlosharding.ir import PACKS, Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.resharding import pack, replicate, to_wanted, unpack, value_of
from hlosharding.partitioner.value import AnyValue, from_leaves, leaves_of, map_leaves
from hlosharding.sharding import REPLICATED, HloSharding


def compute_whole(context: Context, inst: Instruction, why: str) -> AnyValue:
    """The last resort: every device computes the op on whole operands.  Said aloud when it costs anything.

    What has a static size is then moved where it is wanted.
    """
    warn_of_gathers(context, inst, why)
    moved = [map_leaves(value_of(context, o), lambda v: replicate(context, v)) for o in inst.operands]
    local = context.emitter.local(inst, inst.shape, [pack(context, m) for m in moved])
    made = leaves_of(unpack(context, local, inst.shape, [REPLICATED] * len(inst.shape.leaves)))
    wanted = context.wanted_leaves(inst)
    settled = [v if v.shape.dynamic_dims else to_wanted(context, v, w) for v, w in zip(made, wanted, strict=True)]
    return from_leaves(inst.shape, settled)


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


def is_dynamic(_: Context, inst: Instruction) -> bool:
    """Does the instruction make or read an array of dynamic size?  Tuples only hold such."""
    if inst.shape.dynamic_dims:
        return inst.opcode not in PACKS
    for operand in inst.operands:
        if operand.shape.dynamic_dims:
            return inst.opcode not in PACKS
    return False


def lower_dynamic(context: Context, inst: Instruction) -> AnyValue:
    """The op on whole operands; PartitionError where a result of dynamic size is to be split."""
    if inst.is_root:
        for wanted, shape in zip(context.wanted_leaves(inst), inst.shape.leaves, strict=True):
            if shape.dynamic_dims:
                check_whole(inst, wanted)
    return compute_whole(context, inst, "a size is known only at run time")


def check_whole(inst: Instruction, wanted: HloSharding | None) -> None:
    """PartitionError where a result, or what a tuple holds, of dynamic size is to be split."""
    if wanted is not None and not wanted.is_replicated():
        raise PartitionError(
            f"%{inst.name} has a size that is known only at run time, and cannot be split",
            where=inst.location or None,
            remedy="annotate it as replicated",
        )
