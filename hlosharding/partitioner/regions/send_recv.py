"""Send and recv: what one device exchanges with a host, or with another program, over a channel.

Floor: partitioner.  The device that the program names starts and ends the transfer in a branch of its own; the others
do nothing.  In a manual region each device has its own.  A transfer without a device would run as often as there are
devices: XLA refuses it, and so do we.
"""

from __future__ import annotations

from hlosharding.errors import PartitionError
from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.region_values import pack, unpack, value_of
from hlosharding.partitioner.regions.branch_per_device import branch_per_device
from hlosharding.partitioner.regions.manual import MANUAL
from hlosharding.partitioner.regions.one_device import handed_out, nothing
from hlosharding.partitioner.resharding import replicate
from hlosharding.partitioner.value import AnyValue, map_leaves
from hlosharding.sharding import REPLICATED
from hlosharding.spmd import Emitter


def start(context: Context, inst: Instruction) -> AnyValue:
    """Nothing yet: the transfer is written where it ends, since only its end may read what it started."""
    if len(inst.users) != 1 or inst.users[0].opcode != f"{inst.opcode}-done" or inst.is_root:
        raise PartitionError(
            f"%{inst.name} is not read by exactly one {inst.opcode}-done",
            where=inst.where,
            remedy=f"let one {inst.opcode}-done read it, and nothing else",
        )
    _check_devices(context, inst)
    empty = nothing(context.emitter, inst.shape)
    return unpack(context, empty, inst.shape, [REPLICATED] * len(inst.shape.leaves))


def finish(context: Context, inst: Instruction) -> AnyValue:
    """The transfer: by its device, and what it received is handed to all; in a manual region by each device."""
    begun = inst.operands[0]
    values = [value_of(context, o) for o in begun.operands]
    if _is_manual(context, begun):
        local = _transfer(context.emitter, inst, [pack(context, v) for v in values])
        return unpack(context, local, inst.shape, [MANUAL] * len(inst.shape.leaves))
    packed = [pack(context, map_leaves(v, lambda leaf: replicate(context, leaf))) for v in values]
    context.emitter.lowering(inst)
    handed = context.emitter.op("tuple", Shape.tuple(tuple(p.shape for p in packed)), packed)

    def write(emitter: Emitter, operand: Instruction, acts: bool) -> Instruction:
        return _transfer(emitter, inst, emitter.elements(operand)) if acts else nothing(emitter, inst.shape)

    device = _device(context, begun)
    chosen = [int(d != device) for d in range(context.num_partitions)]
    local = branch_per_device(context, inst, handed, (True, False), chosen, write)
    return handed_out(context, inst, local)


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


def _check_devices(context: Context, inst: Instruction) -> None:
    if context.manual_groups is None and (_is_manual(context, inst) or _device(context, inst) is not None):
        return
    raise PartitionError(
        f"%{inst.name}: a {inst.opcode} that is not on one device would run on each of {context.num_partitions}",
        where=inst.where,
        remedy="give it the sharding {maximal device=N}, or put it into a region that is manual over all mesh axes",
    )
