"""Custom calls of one device: a branch on the partition id, which that device takes.

Floor: partitioner.  As XLA's HandleSingleDevice: for those that act, which shall act once, and for those that nobody
knows (a callback into Python is called once, and all devices see the same answer).  What they return is handed to all
devices where somebody reads it.  All other ops are computed by all: nobody sees the difference.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Computation, Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors import warn_of_gathers
from hlosharding.partitioner.value import AnyValue, from_leaves, leaves_of
from hlosharding.rules import Opaque, signature_of
from hlosharding.sharding import REPLICATED, HloSharding
from hlosharding.spmd import Emitter


def acting_device(context: Context, inst: Instruction) -> int | None:
    """The device on which alone a custom call is to run; None where it may run on all, or on no single device."""
    given = context.wanted(inst)
    if given is None or given.device is None or context.manual_groups is not None:
        return None
    return given.device if inst.proto.custom_call_has_side_effect or _is_unknown(inst) else None


def _is_unknown(inst: Instruction) -> bool:
    return isinstance(signature_of(inst), Opaque)


def act_once(context: Context, inst: Instruction, device: int) -> AnyValue:
    """The op on whole operands, in a branch of its own; zeros elsewhere, so that a sum hands out its result."""
    if not inst.proto.custom_call_has_side_effect:
        warn_of_gathers(context, inst, f"it runs on device {device} alone")
    values = [context.map_leaves(context.value(o), context.whole) for o in inst.operands]
    packed = [context.pack(v) for v in values]
    context.emitter.lowering(inst)
    handed = context.emitter.op("tuple", Shape.tuple(tuple(p.shape for p in packed)), packed)
    branches = [_branch(context, inst, handed.shape, acts=acts) for acts in (True, False)]
    chosen = context.emitter.per_device([int(d != device) for d in range(context.num_partitions)])
    local = context.emitter.computation.add(
        "conditional", inst.shape, (chosen, handed, handed), metadata_of=inst, called=branches
    )
    made = leaves_of(context.unpack(local, inst.shape, [REPLICATED] * len(inst.shape.leaves)))
    wanted = context.wanted_leaves(inst)
    partial_sums = HloSharding.unreduced()
    for value in made:
        if inst.users and value.shape.is_array:
            value.sharding, value.reduce_kind = partial_sums, "or" if value.shape.element_type == "pred" else "add"
    settled = [context.settle(v, w, "result of one device") for v, w in zip(made, wanted, strict=True)]
    return from_leaves(inst.shape, settled)


def _branch(context: Context, inst: Instruction, handed: Shape, *, acts: bool) -> Computation:
    builder = context.emitter.program.body(f"{inst.name}_{'acts' if acts else 'waits'}")
    emitter = Emitter(context.emitter.program, builder)
    emitter.lowering(inst)
    parameter = builder.parameter(0, handed, name="handed")
    builder.root(
        emitter.local(inst, inst.shape, emitter.elements(parameter)) if acts else _nothing(emitter, inst.shape)
    )
    return builder.computation


def _nothing(emitter: Emitter, shape: Shape) -> Instruction:
    if shape.is_tuple:
        return emitter.op("tuple", shape, [_nothing(emitter, part) for part in shape.tuple_shapes])
    if not shape.is_array:
        return emitter.op("after-all", shape, ())
    return emitter.full(np.zeros((), shape.dtype), shape)
