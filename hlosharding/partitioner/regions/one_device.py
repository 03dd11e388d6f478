"""Custom calls of one device: a branch on the partition id, which that device takes.

Floor: partitioner.  As XLA's HandleSingleDevice: for those that act, which shall act once, and for those that nobody
knows (a callback into Python is called once, and all devices see the same answer).  What they return is handed to all
devices where somebody reads it.  All other ops are computed by all: nobody sees the difference.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.region_values import pack, unpack, value_of
from hlosharding.partitioner.regions.branch_per_device import branch_per_device
from hlosharding.partitioner.resharding import replicate, to_wanted
from hlosharding.partitioner.value import AnyValue, from_leaves, leaves_of, map_leaves
from hlosharding.partitioner.whole_operands import warn_of_gathers
from hlosharding.rules import Opaque, signature_of
from hlosharding.sharding import REPLICATED, HloSharding
from hlosharding.spmd import Emitter


def is_on_one_device(context: Context, inst: Instruction) -> bool:
    """Is a custom call to run on one device alone?"""
    return acting_device(context, inst) is not None


def acting_device(context: Context, inst: Instruction) -> int | None:
    """The device on which alone a custom call is to run; None where it may run on all, or on no single device."""
    given = context.wanted(inst)
    if given is None or given.device is None or context.manual_groups is not None:
        return None
    return given.device if inst.proto.custom_call_has_side_effect or _is_unknown(inst) else None


def _is_unknown(inst: Instruction) -> bool:
    return isinstance(signature_of(inst), Opaque)


def act_once(context: Context, inst: Instruction) -> AnyValue:
    """The op on whole operands, in a branch of its own; zeros elsewhere, so that a sum hands out its result."""
    device = acting_device(context, inst)
    if not inst.proto.custom_call_has_side_effect:
        warn_of_gathers(context, inst, f"it runs on device {device} alone")
    values = [map_leaves(value_of(context, o), lambda v: replicate(context, v)) for o in inst.operands]
    packed = [pack(context, v) for v in values]
    context.emitter.lowering(inst)
    operand = context.emitter.op("tuple", Shape.tuple(tuple(p.shape for p in packed)), packed)

    def write(emitter: Emitter, operand: Instruction, acts: bool) -> Instruction:
        return emitter.local(inst, inst.shape, emitter.elements(operand)) if acts else nothing(emitter, inst.shape)

    chosen = [int(d != device) for d in range(context.num_partitions)]
    local = branch_per_device(context, inst, operand, (True, False), chosen, write)
    return handed_out(context, inst, local)


def handed_out(context: Context, inst: Instruction, local: Instruction) -> AnyValue:
    """To all devices where somebody reads it: what the others hold is zeros."""
    made = leaves_of(unpack(context, local, inst.shape, [REPLICATED] * len(inst.shape.leaves)))
    for value in made:
        if inst.users and value.shape.is_array:
            value.reduce_kind = "or" if value.shape.element_type == "pred" else "add"
            value.sharding = HloSharding.unreduced()
    leaves = zip(made, context.wanted_leaves(inst), strict=True)
    return from_leaves(inst.shape, [to_wanted(context, v, w, "result of one device") for v, w in leaves])


def nothing(emitter: Emitter, shape: Shape) -> Instruction:
    """Zeros, and fresh tokens: what a device has that takes no part."""
    if shape.is_tuple:
        return emitter.op("tuple", shape, [nothing(emitter, part) for part in shape.tuple_shapes])
    if not shape.is_array:
        return emitter.op("after-all", shape, ())
    return emitter.full(np.zeros((), shape.dtype), shape)
