"""Ops that act, and are to act once: a branch on the partition id, which one device takes.

Floor: partitioner.  As XLA does with one-device ops that have side effects.  What they return is handed to all devices
where somebody reads it.  Ops without side effects are computed by all: nobody sees the difference.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Computation, Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.projection import REPLICATED
from hlosharding.partitioner.value import AnyValue, from_leaves, leaves_of
from hlosharding.sharding import HloSharding


def acting_device(context: Context, inst: Instruction) -> int | None:
    """The device on which alone a custom call acts; None where it does not act, or on no single device."""
    if inst.opcode != "custom-call" or not inst.proto.custom_call_has_side_effect or context.world is not None:
        return None
    given = context.wanted(inst)
    return None if given is None else given.device


def act_once(context: Context, inst: Instruction, device: int) -> AnyValue:
    """The op on whole operands, in a branch of its own; zeros elsewhere, so that a sum hands out its result."""
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
    addends = HloSharding.unreduced()
    for value in made:
        if inst.users and value.shape.is_array:
            value.sharding, value.reduce_kind = addends, "or" if value.shape.element_type == "pred" else "add"
    settled = [context.settle(v, w, "result of one device") for v, w in zip(made, wanted, strict=True)]
    return from_leaves(inst.shape, settled)


def _branch(context: Context, inst: Instruction, handed: Shape, *, acts: bool) -> Computation:
    builder = context.emitter.program.body(f"{inst.name}_{'acts' if acts else 'waits'}")
    emitter = Emitter(context.emitter.program, builder)
    emitter.lowering(inst)
    parameter = builder.parameter(0, handed, name="handed")
    parts = [emitter.op("get-tuple-element", s, (parameter,), tuple_index=n) for n, s in enumerate(handed.tuple_shapes)]
    builder.root(emitter.local(inst, inst.shape, parts) if acts else _nothing(emitter, inst.shape))
    return builder.computation


def _nothing(emitter: Emitter, shape: Shape) -> Instruction:
    if shape.is_tuple:
        return emitter.op("tuple", shape, [_nothing(emitter, part) for part in shape.tuple_shapes])
    if not shape.is_array:
        return emitter.op("after-all", shape, ())
    return emitter.full(np.zeros((), shape.dtype), shape)
