"""Manual regions (`jax.shard_map` inside the program): code that is per device already, or per group of devices.

Floor: partitioner.  The calls at its boundary only change how a value is looked at.  Over all mesh axes: shapes inside
are local and every op is taken over as it stands.  Over some of them: each group of devices partitions the op among its
members (`spmd/manual_groups.py`); the user's collectives run between groups, ours inside each of them.
"""

from __future__ import annotations

from hlosharding.errors import PartitionError
from hlosharding.ir import CONTROL_FLOW, PACKS, Instruction
from hlosharding.ir import custom_call_targets as targets
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.resharding import (
    array_of,
    local_shape,
    pack,
    replicate,
    reshard,
    reshard_leaves,
    seen_from,
    to_wanted,
    unpack,
    value_of,
)
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, leaves_of, shape_of_leaves
from hlosharding.sharding import REPLICATED, HloSharding, replicate_on_dims
from hlosharding.spmd import (
    Devices,
    ManualGroups,
    device_groups,
    group_pieces,
    manual_groups_of,
    permute_pairs,
    sharding_in_groups,
    sharding_of_all,
    tiles_in_groups,
)

MANUAL = HloSharding.manual()
# Each of their parts may be of another region, or of none.
_CARRIES_PARTS = PACKS | CONTROL_FLOW | {"opt-barrier", "after-all", "add-dependency"}


def is_manual(context: Context, inst: Instruction) -> bool:
    """Is every result of the instruction per device?"""
    wanted = context.wanted(inst)
    return wanted is not None and wanted.is_manual()


def is_per_device(context: Context, inst: Instruction) -> bool:
    """Is it an op of a manual region over all devices?  Values only pass through those of `_CARRIERS`."""
    given = context.shardings.get(inst.id)
    return given is not None and given.is_manual() and inst.opcode not in _CARRIERS


_CARRIERS = PACKS | CONTROL_FLOW | {"copy"}
"""Their parts and bodies see to themselves."""


def alike(context: Context, inst: Instruction) -> HloSharding:
    """The sharding in which an instruction is the same on all devices, or on all of its manual group."""
    wanted = context.wanted(inst)
    if wanted is None or not (wanted.is_manual() or wanted.is_manual_subgroup()):
        return REPLICATED
    return MANUAL if wanted.is_manual() else sharding_of_all(REPLICATED, manual_groups_of(wanted), inst.shape.rank)


def note_synced_condition(context: Context, made: Instruction, sharding: HloSharding) -> None:
    """Of a loop or branch whose condition has this sharding: all devices go one way, or all of each manual group."""
    if sharding is not MANUAL:
        everyone = tuple(range(context.emitter.program.num_partitions))
        groups = manual_groups_of(sharding).groups if sharding.is_manual_subgroup() else (everyone,)
        context.emitter.program.synced_conditions[made] = groups


def is_boundary_call(inst: Instruction) -> bool:
    """Does the instruction enter or leave a manual region?"""
    return inst.opcode == "custom-call" and inst.custom_call_target in targets.MANUAL_CONVERSIONS


def region_of(context: Context, inst: Instruction) -> ManualGroups | None:
    """The manual region whose groups compute the instruction; None where all devices do, or each its own."""
    if not context.decisions.has_manual_groups or inst.opcode in _CARRIES_PARTS or is_boundary_call(inst):
        return None
    given = context.wanted(inst)
    if given is not None and not given.is_unknown():
        return next((manual_groups_of(s) for s in given.leaves if s.is_manual_subgroup()), None)
    found = (_region_of_value(context.values[o]) for o in inst.operands)
    return next((manual_groups for manual_groups in found if manual_groups is not None), None)


def _region_of_value(value: AnyValue | DeferredReduction) -> ManualGroups | None:
    for part in leaves_of(value):
        if part.manual_groups is not None or part.sharding.is_manual_subgroup():
            return part.manual_groups or manual_groups_of(part.sharding)
    return None


def stamped(made: AnyValue | DeferredReduction, manual_groups: ManualGroups) -> AnyValue | DeferredReduction:
    """Results of a region know that they are."""
    for part in leaves_of(made):
        part.manual_groups = manual_groups
    return made


# The boundary


def cross_boundary(context: Context, inst: Instruction) -> AnyValue:
    """The same local array, seen from the other side."""
    value = array_of(context, inst.operands[0])
    if inst.custom_call_target == targets.SHARD_TO_FULL:
        wanted = as_compared(context.wanted(inst))
        if value.sharding.is_manual_subgroup():
            return _leave_groups(context, inst, value, wanted)
        return Value(value.local, inst.shape, wanted)
    given = context.wanted(inst.operands[0])
    # Shapes inside are those of the tiles that the annotation in front of the region asks for, wherever this lies.
    value = to_wanted(context, value, as_compared(given) if given is not None else REPLICATED, "enter a manual region")
    inside = as_compared(context.wanted(inst))
    if inside.is_manual_subgroup():
        return _enter_groups(context, inst, value, inside)
    if value.local.shape.dims != inst.shape.dims:
        raise PartitionError(
            f"a manual region takes {inst.shape}, the tiles of {value.sharding} are {value.local.shape}",
            where=inst.where,
        )
    return Value(value.local, inst.shape, MANUAL)


def _enter_groups(context: Context, inst: Instruction, value: Value, inside: HloSharding) -> Value:
    """Each group takes its piece, in the tiles it has; they are moved inside the group where others are wanted."""
    region = context.inside(manual_groups_of(inside))
    assert region.manual_groups is not None
    whole, piece = value.shape.dims, inst.shape.dims
    found = tiles_in_groups(value.sharding, region.manual_groups, whole, piece)
    if found is None:
        pieces = _pieces(inst, value.sharding, region.manual_groups, whole, piece)
        value, found = to_wanted(context, value, pieces), REPLICATED
    entered = Value(value.local, inst.shape, found, manual_groups=region.manual_groups)
    return to_wanted(region, entered, sharding_in_groups(inside, region.manual_groups), "enter a manual region")


def _leave_groups(context: Context, inst: Instruction, value: Value, wanted: HloSharding) -> Value:
    """Each group brings its piece into the tiles that are wanted outside; where they are not the group's own, later."""
    region = context.inside(manual_groups_of(value.sharding))
    assert region.manual_groups is not None
    inner, whole, piece = seen_from(region, value), inst.shape.dims, value.shape.dims
    assert isinstance(inner, Value)
    found = tiles_in_groups(wanted, region.manual_groups, whole, piece)
    if found is not None:
        return Value(to_wanted(region, inner, found, "leave a manual region").local, inst.shape, wanted)
    outside = _pieces(inst, wanted, region.manual_groups, whole, piece)
    left = Value(replicate(region, inner, "leave a manual region").local, inst.shape, outside)
    return to_wanted(context, left, wanted, "leave a manual region")


def _pieces(
    inst: Instruction, outer: HloSharding, manual_groups: ManualGroups, whole: tuple[int, ...], piece: tuple[int, ...]
) -> HloSharding:
    found = group_pieces(outer, manual_groups, whole, piece)
    if found is None:
        raise PartitionError(
            f"the tiles of {outer} do not make up the pieces of {piece} that the manual groups have of {whole}",
            where=inst.where,
            remedy="give shard_map's in_specs or out_specs, and the sharding of the value, the manual axes first",
        )
    return found


# Ops


def take_over(context: Context, inst: Instruction) -> AnyValue:
    """An op of a manual region: the op itself."""
    operands = [pack(context, value_of(context, o)) for o in inst.operands]
    local = context.emitter.local(inst, inst.shape, operands)
    partial_sums = context.emitter.program.partial_sums
    if not partial_sums.values.isdisjoint(operands):
        partial_sums.readers.add(local)  # sums that enter a region as they are, its own ops reduce
    return unpack(context, local, inst.shape, [MANUAL] * len(inst.shape.leaves))


def communicate(context: Context, inst: Instruction) -> AnyValue:
    """The user's collective between manual groups: every member runs it on its tile, with the groups as they stand.

    As XLA, only between groups: the tiles inside one are not the user's to combine.
    """
    manual_groups = context.manual_groups
    assert manual_groups is not None, "a collective of a region is lowered in its context"
    values = [array_of(context, o) for o in inst.operands]
    targets = [replicate_on_dims(v.sharding, _mixed_dims(inst)).meaning for v in values]
    _check_members(inst, manual_groups, all(t is REPLICATED for t in targets))
    moved = [reshard(context, v, t, "collective of a manual region") for v, t in zip(values, targets, strict=True)]
    tiles = (local_shape(context, s, t) for s, t in zip(inst.shape.leaves, targets, strict=True))
    local = context.emitter.local(inst, shape_of_leaves(inst.shape, tiles), [m.local for m in moved])
    return reshard_leaves(context, unpack(context, local, inst.shape, targets), context.wanted_leaves(inst))


def _mixed_dims(inst: Instruction) -> tuple[int, ...]:
    """Dims that the collective cuts or joins; an all-to-all's come in pairs that JAX writes as one dim of its own."""
    return inst.dimensions if inst.opcode in ("all-gather", "reduce-scatter", "all-to-all") else ()


def _check_members(inst: Instruction, manual_groups: ManualGroups, is_whole: bool) -> None:
    devices = Devices(manual_groups.size * len(manual_groups.groups))
    is_permute = inst.opcode == "collective-permute"
    members = permute_pairs(inst, devices) if is_permute else device_groups(inst, devices)
    for group in members:
        places = [manual_groups.places[d] for d in dict.fromkeys(group)]
        if len({g for g, _ in places}) < len(places):
            raise PartitionError(
                f"{inst.opcode} combines devices {group} of one manual group",
                where=inst.where,
                remedy="name only axes of axis_names in the collective; the others are partitioned automatically",
            )
        if not is_whole and len({p for _, p in places}) > 1:
            raise PartitionError(
                f"{inst.opcode} between devices {group} whose tiles differ", where=inst.where,
                remedy="name whole manual axes in the collective",
            )  # fmt: skip
