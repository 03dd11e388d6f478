"""What the ids in a collective's replica groups name: replicas, partitions or devices; and how many a group has.

Floor: ir.  Follows XLA's GetCollectiveOpGroupMode and GetSubgroupSize.  Which devices these are is said in `spmd`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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


def named_things(mode: GroupMode, partitions: int, replicas: int) -> tuple[int, str]:
    """How many there are of what the ids name, and what one of them is called.

    >>> named_things("cross-partition", 4, replicas=2), named_things("flattened-id", 4, replicas=2)
    ((4, 'partition'), (8, 'device'))
    """
    match mode:
        case "cross-partition":
            return partitions, "device" if replicas == 1 else "partition"
        case "flattened-id":
            return partitions * replicas, "device"
        case "cross-replica" | "cross-replica-and-partition":
            return replicas, "replica"


def fault_of_ids(ids: Sequence[int], limit: int | None, noun: str, where: str) -> str | None:
    """What is wrong with ids: one stands there twice, is negative, or is not below the limit; or None.

    >>> fault_of_ids((0, 1, 1), 4, "device", "among its targets"), fault_of_ids((0, 4), 4, "device", "in its groups")
    ('device 1 twice among its targets', 'device 4 in its groups; the program is for 4')
    """
    if len(set(ids)) < len(ids):
        # Counted once: a text may have a million of them, with the one twice at its end.
        return f"{noun} {Counter(ids).most_common(1)[0][0]} twice {where}"
    alien = next((number for number in ids if number < 0 or (limit is not None and number >= limit)), None)
    if alien is None:
        return None
    return f"{noun} {alien} {where}" + ("" if limit is None else f"; the program is for {limit}")


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
    size = len(groups[0]) if groups else named_things(mode, partitions, replicas)[0]
    return size * partitions if mode == "cross-replica-and-partition" else size
