"""What the ids in a collective's replica groups name: replicas, partitions or devices; and how many a group has.

Floor: ir.  Follows XLA's GetCollectiveOpGroupMode and GetSubgroupSize.  Which devices these are is said in `spmd`.
"""

from __future__ import annotations

from typing import Literal

from hlosharding.ir.graph import Instruction
from hlosharding.ir.opcode import collective_kind

GroupMode = Literal["cross-replica", "cross-partition", "cross-replica-and-partition", "flattened-id"]
"""Replicas (each partition by itself), partitions (each replica by itself), replicas with all their partitions, or
devices."""

# Only these can say that their groups name devices; the others name partitions as soon as they have a channel.
_WITH_GLOBAL_IDS = frozenset({"all-gather", "all-reduce", "reduce-scatter"})


def group_mode(inst: Instruction) -> GroupMode:
    """What the replica groups (or the source and target ids) of a collective name.

    >>> from hlosharding.ir import Builder, Shape
    >>> main = Builder("m", num_partitions=4).computation("main")
    >>> x = main.parameter(0, Shape.array("f32", (8,)))
    >>> group_mode(main.add("all-reduce", x.shape, (x,), channel_id=1, use_global_device_ids=True))
    'flattened-id'
    >>> group_mode(main.add("all-to-all", x.shape, (x,), channel_id=2, dimensions=(0,)))
    'cross-partition'
    """
    if collective_kind(inst.opcode) not in _WITH_GLOBAL_IDS:
        return "cross-partition" if inst.channel_id else "cross-replica"
    if inst.use_global_device_ids:
        return "flattened-id"  # also without a channel, which XLA refuses: it is all that they can mean
    return "cross-replica-and-partition" if inst.channel_id else "cross-replica"


def group_size(inst: Instruction) -> int:
    """Devices in a group of a collective (in the first one); no groups mean one of all that the ids can name.

    >>> from hlosharding.ir import Builder, Shape
    >>> main = Builder("m", num_partitions=4).computation("main")
    >>> x = main.parameter(0, Shape.array("f32", (8,)))
    >>> group_size(main.add("all-reduce", x.shape, (x,)))  # one replica, so each device is alone
    1
    >>> group_size(main.add("all-reduce", x.shape, (x,), channel_id=1, replica_groups=((0,),)))
    4
    """
    partitions, replicas = max(1, inst.module.num_partitions), max(1, inst.module.num_replicas)
    mode, groups = group_mode(inst), inst.replica_groups
    match mode:
        case "cross-partition":
            size = len(groups[0]) if groups else partitions
        case "flattened-id":
            size = len(groups[0]) if groups else partitions * replicas
        case "cross-replica" | "cross-replica-and-partition":
            size = len(groups[0]) if groups else replicas
    return size * partitions if mode == "cross-replica-and-partition" else size
