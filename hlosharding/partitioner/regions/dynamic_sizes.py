"""Arrays whose size along a dim is known only at run time: whole on every device, as are the ops that read them.

Floor: partitioner.  A tile of such an array would hold elements past its end as if they were data.
"""

from __future__ import annotations

from hlosharding.errors import PartitionError
from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors import warn_of_gathers
from hlosharding.partitioner.region_values import pack, unpack, value_of
from hlosharding.partitioner.resharding import replicate, to_wanted
from hlosharding.partitioner.value import AnyValue, from_leaves, leaves_of, map_leaves
from hlosharding.sharding import REPLICATED, HloSharding

_HOLDERS = frozenset({"tuple", "get-tuple-element"})


def is_dynamic(inst: Instruction) -> bool:
    """Does the instruction make or read an array of dynamic size?  Tuples only hold such."""
    if inst.shape.dynamic_dims:
        return inst.opcode not in _HOLDERS
    for operand in inst.operands:
        if operand.shape.dynamic_dims:
            return inst.opcode not in _HOLDERS
    return False


def check_whole(inst: Instruction, wanted: HloSharding | None) -> None:
    """PartitionError where a result, or what a tuple holds, of dynamic size is to be split."""
    if wanted is not None and not wanted.is_replicated():
        raise PartitionError(
            f"%{inst.name} has a size that is known only at run time, and cannot be split",
            where=inst.location or None,
            remedy="annotate it as replicated",
        )


def lower_dynamic(context: Context, inst: Instruction) -> AnyValue:
    """The op on whole operands.  What has a static size is moved where it is wanted, the rest stays whole."""
    if inst.is_root:
        for wanted, shape in zip(context.wanted_leaves(inst), inst.shape.leaves, strict=True):
            if shape.dynamic_dims:
                check_whole(inst, wanted)
    warn_of_gathers(context, inst, "a size is known only at run time")
    moved = [map_leaves(value_of(context, o), lambda v: replicate(context, v)) for o in inst.operands]
    local = context.emitter.local(inst, inst.shape, [pack(context, m) for m in moved])
    made = leaves_of(unpack(context, local, inst.shape, [REPLICATED] * len(inst.shape.leaves)))
    wanted = context.wanted_leaves(inst)
    settled = [v if v.shape.dynamic_dims else to_wanted(context, v, w) for v, w in zip(made, wanted, strict=True)]
    return from_leaves(inst.shape, settled)
