"""Who takes part in a collective: the devices that its replica groups (or pairs) mean, said once for all rooms.

Floor: spmd.  Follows XLA's GetParticipatingDevicesGroups; what the ids name is said in `ir`.  Knows nothing of bytes,
of mesh axes, or of what the collective computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from hlosharding.errors import ModuleError
from hlosharding.ir import GroupMode, Instruction, ModuleGraph, collective_kind, fault_of_ids, group_mode, named_things

Groups = tuple[tuple[int, ...], ...]
"""Device groups."""
Pairs = tuple[tuple[int, int], ...]
"""(source, target) devices of a permute."""


class Devices(NamedTuple):
    """Who runs a program: `partitions` devices, that many times `replicas`.

    Partition p of replica r is device `r * partitions + p`, as in XLA's device assignment.

    >>> Devices(4, replicas=2).count
    8
    """

    partitions: int
    replicas: int = 1

    @property
    def count(self) -> int:
        """How many devices there are."""
        return self.partitions * self.replicas


def devices_of(module: ModuleGraph, collectives: Iterable[Instruction] | None = None) -> Devices:
    """Who runs a module: what it states, or as many as its collectives name where it states nothing.

    `collectives`: those to ask in that case; default: all of the module.

    >>> import hlosharding as hs
    >>> devices_of(hs.load("HloModule m, num_partitions=8\\nENTRY e {\\n  ROOT x = f32[4] parameter(0)\\n}"))
    Devices(partitions=8, replicas=1)
    """
    partitions, replicas = max(1, module.num_partitions), max(1, module.num_replicas)
    if partitions * replicas > 1:
        return Devices(partitions, replicas)
    return _named(module.instructions if collectives is None else collectives)


def _named(instructions: Iterable[Instruction]) -> Devices:
    counts: Counter[GroupMode] = Counter()
    for inst in instructions:
        if collective_kind(inst.opcode):
            ids = (number for row in (*inst.replica_groups, *inst.source_target_pairs) for number in row)
            mode = group_mode(inst)
            counts[mode] = max(counts[mode], 1 + max(ids, default=0))
    # A flattened id counts through all replicas: partitions are as many as the largest one needs, rounded up.
    replicas = max(1, counts["cross-replica"], counts["cross-replica-and-partition"])
    return Devices(max(1, counts["cross-partition"], -(-counts["flattened-id"] // replicas)), replicas)


def device_groups(inst: Instruction, devices: Devices) -> Groups:
    """The groups in which devices come together in a collective; every device is in exactly one.

    A device that no replica group names is alone (XLA refuses to run it).  Of a permute: who waits for each other.
    Raises ModuleError where the replica groups name what is not there, or something twice.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m", num_partitions=4)
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (8,)))
    >>> device_groups(main.add("all-reduce", x.shape, (x,)), Devices(4))  # one replica, so each device is alone
    ((0,), (1,), (2,), (3,))
    >>> device_groups(main.add("all-reduce", x.shape, (x,), replica_groups=((0,),), channel_id=1), Devices(4))
    ((0, 1, 2, 3),)
    """
    return _groups_and_rest(inst, devices)[0]


def left_out(inst: Instruction, devices: Devices) -> tuple[int, ...]:
    """Devices that the replica groups of a collective do not name.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m", num_partitions=4)
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (8,)))
    >>> left_out(main.add("all-to-all", x.shape, (x,), replica_groups=((0, 2),), channel_id=1), Devices(4))
    (1, 3)
    """
    return _groups_and_rest(inst, devices)[1]


def _groups_and_rest(inst: Instruction, devices: Devices) -> tuple[Groups, tuple[int, ...]]:
    try:
        return _device_groups(group_mode(inst), inst.replica_groups, devices)
    except _IdError as error:
        raise _refusal(inst, error) from None


def permute_pairs(inst: Instruction, devices: Devices) -> Pairs:
    """(source, target) devices of a collective-permute.

    Raises ModuleError where a pair names what is not there, or two pairs have a source or a target in common.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m", num_partitions=2)
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (8,)))
    >>> permute_pairs(main.add("collective-permute", x.shape, (x,), source_target_pairs=((0, 1),), channel_id=1),
    ...               Devices(2, replicas=2))
    ((0, 1), (2, 3))
    """
    try:
        return _permute_pairs(group_mode(inst), inst.source_target_pairs, devices)
    except _IdError as error:
        raise _refusal(inst, error) from None


class _IdError(Exception):
    """An id that cannot stand where it stands."""


def _refusal(inst: Instruction, error: _IdError) -> ModuleError:
    is_of_replicas = group_mode(inst).startswith("cross-replica")
    remedy = "ids name devices only with a channel and use_global_device_ids=true" if is_of_replicas else None
    return ModuleError(f"{inst.opcode} {error}", where=f"{inst!r} {inst.location}".strip(), remedy=remedy)


@lru_cache(maxsize=1 << 12)
def _device_groups(mode: GroupMode, groups: Groups, devices: Devices) -> tuple[Groups, tuple[int, ...]]:
    """The groups, and the devices among them that are alone because nobody names them."""
    limit, noun = named_things(mode, *devices)
    # As XLA: where there is but one replica (or partition), groups of others are let pass, and nobody looks at them.
    there = tuple(group for group in groups if limit > 1 or 0 in group)
    for some, beyond in ((groups, None), (there, limit)):
        _refuse_ids([number for group in some for number in group], beyond, noun, "in its replica groups")
    found = _as_devices(mode, there or (tuple(range(limit)),), devices)
    alone = tuple(sorted(set(range(devices.count)).difference(*found)))
    return (*found, *((device,) for device in alone)), alone


@lru_cache(maxsize=1 << 12)
def _permute_pairs(mode: GroupMode, pairs: Pairs, devices: Devices) -> Pairs:
    limit, noun = named_things(mode, *devices)
    there = tuple(pair for pair in pairs if limit > 1 or pair == (0, 0))
    for side, ids in zip(("sources", "targets"), zip(*pairs, strict=True), strict=False):
        _refuse_ids(ids, limit if limit > 1 else None, noun, f"among its {side}")
    return tuple((s, t) for s, t in _as_devices(mode, there, devices))


def _refuse_ids(ids: Sequence[int], limit: int | None, noun: str, where: str) -> None:
    fault = fault_of_ids(ids, limit, noun, where)
    if fault is not None:
        raise _IdError(f"has {fault}")


def _as_devices(mode: GroupMode, groups: Groups, devices: Devices) -> Groups:
    partitions, replicas = devices
    match mode:
        case "flattened-id":
            return groups
        case "cross-partition" if replicas == 1:
            return groups
        case "cross-partition":
            return tuple(tuple(r * partitions + p for p in group) for group in groups for r in range(replicas))
        case "cross-replica":
            return tuple(tuple(r * partitions + p for r in group) for group in groups for p in range(partitions))
        case "cross-replica-and-partition":
            return tuple(tuple(r * partitions + p for r in group for p in range(partitions)) for group in groups)
