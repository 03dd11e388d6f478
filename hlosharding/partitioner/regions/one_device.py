"""What one device does alone: a branch on the partition id, which that device takes.

Floor: partitioner.  Custom calls as XLA's HandleSingleDevice: for those that act, which shall act once, and for those
that nobody knows (a callback into Python is called once, and all devices see the same answer).  What they return is
handed to all devices where somebody reads it.  All other ops are computed by all: nobody sees the difference.

Send and recv, what one device exchanges with a host, or with another program, over a channel: the device that the
program names starts and ends the transfer in a branch of its own; the others do nothing.  In a manual region each
device has its own.  A transfer without a device would run as often as there are devices: XLA refuses it, and so do we.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from hlosharding.errors import PartitionError
from hlosharding.ir import Computation, Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.regions.manual import MANUAL
from hlosharding.partitioner.resharding import pack, replicate, reshard_leaves, unpack, value_of, warn_of_gathers
from hlosharding.partitioner.value import AnyValue, Value, leaves_of, map_leaves
from hlosharding.rules import Opaque, signature_of
from hlosharding.sharding import REPLICATED, HloSharding
from hlosharding.spmd import Emitter

Task = TypeVar("Task")
Write = Callable[[Emitter, Instruction, Task], Instruction]
"""(an emitter of the branch, its parameter, what its devices do) -> its result."""


def branch_per_device(
    context: Context,
    inst: Instruction,
    operand: Instruction,
    tasks: Sequence[Task],
    chosen: Sequence[int],
    write: Write[Task],
) -> Instruction:
    """The result of each device's own task on the local `operand`; `chosen`: the number of the task by device."""
    called = [_branch(context, inst, operand, write, task) for task in tasks]
    operands = (context.emitter.per_device(chosen), *(operand,) * len(called))
    return context.emitter.op("conditional", called[0].root.shape, operands, called=called)


def _branch(context: Context, inst: Instruction, operand: Instruction, write: Write[Task], task: Task) -> Computation:
    builder = context.emitter.program.body(f"{inst.name}_branch")
    emitter = Emitter(context.emitter.program, builder, context.emitter.manual_groups)
    emitter.lowering(inst)
    builder.root(write(emitter, builder.parameter(0, operand.shape, name="operand"), task))
    return builder.computation


def acting_device(context: Context, inst: Instruction) -> int | None:
    """The device on which alone a custom call is to run; None where it may run on all, or on no single device."""
    given = context.wanted(inst)
    if given is None or given.device is None or context.manual_groups is not None:
        return None
    acts = inst.proto.custom_call_has_side_effect or isinstance(signature_of(inst), Opaque)
    return given.device if acts else None


def act_once(context: Context, inst: Instruction) -> AnyValue:
    """The op on whole operands, in a branch of its own; zeros elsewhere, so that a sum hands out its result."""
    device = acting_device(context, inst)
    if not inst.proto.custom_call_has_side_effect:
        warn_of_gathers(context, inst, f"it runs on device {device} alone")
    values = [value_of(context, o) for o in inst.operands]
    return _by_one(context, inst, device, values, lambda emitter, operands: emitter.local(inst, inst.shape, operands))


def _by_one(
    context: Context,
    inst: Instruction,
    device: int | None,
    values: Sequence[AnyValue],
    act: Callable[[Emitter, list[Instruction]], Instruction],
) -> AnyValue:
    """What one device makes of whole values, for all where somebody reads it: what the others hold is zeros."""
    packed = [pack(context, map_leaves(v, lambda leaf: _at_device(context, leaf, device))) for v in values]
    context.emitter.lowering(inst)
    operand = context.emitter.op("tuple", Shape.tuple(tuple(p.shape for p in packed)), packed)

    def write(emitter: Emitter, operand: Instruction, acts: bool) -> Instruction:
        return act(emitter, emitter.elements(operand)) if acts else nothing(emitter, inst.shape)

    chosen = [int(d != device) for d in range(context.num_partitions)]
    local = branch_per_device(context, inst, operand, (True, False), chosen, write)
    made = unpack(context, local, inst.shape, [REPLICATED] * len(inst.shape.leaves))
    for value in leaves_of(made):
        # Of what nobody reads no sum is owed: a print takes no collective.
        if (inst.users or inst.is_root) and value.shape.is_array:
            value.reduce_kind = "or" if value.shape.element_type == "pred" else "add"
            value.sharding = HloSharding.unreduced()
    handed = reshard_leaves(context, made, context.wanted_leaves(inst), "result of one device")
    for value, alone in zip(leaves_of(handed), leaves_of(made), strict=True):
        value.before_handing_out = (device, alone.local)
    return handed


def _at_device(context: Context, value: Value, device: int | None) -> Value:
    """The whole value where that device takes it; the others may hold anything."""
    maker, local = value.before_handing_out or (None, value.local)
    if maker is not None and maker == device:
        return Value(local, value.shape, REPLICATED, manual_groups=context.manual_groups)
    return replicate(context, value)


def nothing(emitter: Emitter, shape: Shape) -> Instruction:
    """Zeros, and fresh tokens: what a device has that takes no part."""
    if shape.is_tuple:
        return emitter.op("tuple", shape, [nothing(emitter, part) for part in shape.tuple_shapes])
    if not shape.is_array:
        return emitter.op("after-all", shape, ())
    return emitter.full(np.zeros((), shape.dtype), shape)


def start_transfer(context: Context, inst: Instruction) -> AnyValue:
    """Nothing yet: the transfer is written where it ends, since only its end may read what it started."""
    if len(inst.users) != 1 or inst.users[0].opcode != f"{inst.opcode}-done" or inst.is_root:
        raise PartitionError(
            f"%{inst.name} is not read by exactly one {inst.opcode}-done",
            where=inst.where,
            remedy=f"let one {inst.opcode}-done read it, and nothing else",
        )
    is_one = context.manual_groups is None and (_is_manual(context, inst) or _device(context, inst) is not None)
    if not is_one:
        raise PartitionError(
            f"%{inst.name}: a {inst.opcode} that is not on one device would run on each of {context.num_partitions}",
            where=inst.where,
            remedy="give it the sharding {maximal device=N}, or put it into a region that is manual over all mesh axes",
        )
    empty = nothing(context.emitter, inst.shape)
    return unpack(context, empty, inst.shape, [REPLICATED] * len(inst.shape.leaves))


def finish_transfer(context: Context, inst: Instruction) -> AnyValue:
    """The transfer: by its device, and what it received is handed to all; in a manual region by each device."""
    begun = inst.operands[0]
    values = [value_of(context, o) for o in begun.operands]
    if _is_manual(context, begun):
        local = _transfer(context.emitter, inst, [pack(context, v) for v in values])
        return unpack(context, local, inst.shape, [MANUAL] * len(inst.shape.leaves))
    device = _device(context, begun)
    return _by_one(context, inst, device, values, lambda emitter, operands: _transfer(emitter, inst, operands))


def _transfer(emitter: Emitter, done: Instruction, operands: list[Instruction]) -> Instruction:
    begun = done.operands[0]
    return emitter.local(done, done.shape, (emitter.local(begun, begun.shape, operands),))


def _is_manual(context: Context, inst: Instruction) -> bool:
    given = context.wanted(inst)
    return given is not None and all(leaf.is_manual() for leaf in given.leaves)


def _device(context: Context, inst: Instruction) -> int | None:
    """The one device that all parts of the result name."""
    given = context.wanted(inst)
    named = {leaf.device for leaf in given.leaves} if given is not None else set()
    return named.pop() if len(named) == 1 else None
