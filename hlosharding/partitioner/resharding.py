"""What operands became, as the region that asks sees them, and how they get into another sharding.

Floor: partitioner.  The planner (`hlosharding.reshard`) gives the steps; here is decided what makes most of them
needless: what can be made anew is, what was whole for somebody is cut, broadcast dims travel as one slice, and what a
convert widened travels as it was before.  Values of a manual region move inside each of its groups.  Deferred
reductions are made when somebody asks for the value.

The last resort are ops on whole operands, which every device computes.  A tile of an array of dynamic size would hold
elements past its end as if they were data: such an array, and what reads it, is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hlosharding.errors import PartitionError
from hlosharding.ir import ELEMENTWISE, PACKS, REARRANGES, Instruction, Shape
from hlosharding.partitioner.broadcast_dims import dims_of_one_slice, one_slice_of
from hlosharding.partitioner.context import Context, PlanContext
from hlosharding.partitioner.prices import SMALL, reduction_between
from hlosharding.partitioner.value import (
    AnyValue,
    DeferredReduction,
    TupleValue,
    Value,
    from_leaves,
    is_array_in,
    leaves_of,
    map_leaves,
    parts_of,
)
from hlosharding.reshard import is_partial, plan_steps
from hlosharding.sharding import REPLICATED, HloSharding
from hlosharding.spmd import manual_groups_of, sharding_in_groups, sharding_of_all

_REMADE = ELEMENTWISE | REARRANGES


def local_shape(context: PlanContext, shape: Shape, sharding: HloSharding) -> Shape:
    """The shape of one tile; asked for thousands of times, of few shapes."""
    known = context.decisions.local_shapes.get(sharding.uid)
    if known is None:
        known = context.decisions.local_shapes[sharding.uid] = {}
    found = known.get(shape)
    if found is None:
        found = shape.with_dims(sharding.tile_shape(shape.dims)) if shape.is_array else shape
        known[shape] = found
    return found


def reshard(context: Context, value: Value, target: HloSharding, reason: str = "reshard") -> Value:
    """The value in another sharding; made once per value and target."""
    if value.sharding is target or not value.shape.is_array:
        return value
    found = value.reshards.get(target)
    if found is None:
        found = _reshard(context, value, target, reason)
        found.manual_groups = context.manual_groups
        value.reshards[target] = found
    return found


def reshard_leaves(
    context: Context, value: AnyValue, targets: Sequence[HloSharding | None], reason: str = "reshard result"
) -> AnyValue:
    """Every array of a value in its target sharding; where that is None as `to_wanted`."""
    moved = [to_wanted(context, v, t, reason) for v, t in zip(leaves_of(value), targets, strict=True)]
    return from_leaves(value.shape, moved)


def replicate(context: Context, value: Value, reason: str = "replicate") -> Value:
    """The value replicated; of a manual region: over each of its groups."""
    target = REPLICATED
    if value.sharding.is_manual_subgroup():
        target = sharding_of_all(REPLICATED, manual_groups_of(value.sharding), value.shape.rank)
    return reshard(context, value, target, reason)


def to_wanted(context: Context, value: Value, wanted: HloSharding | None, reason: str = "reshard result") -> Value:
    """The value as its instruction shall have it: in the wanted sharding, or its own with partial sums reduced."""
    return reshard(context, value, wanted if wanted is not None else value.whole_sharding, reason)


# How a value travels


def _reshard(context: Context, value: Value, target: HloSharding, reason: str) -> Value:
    if value.rematerialize is not None:
        return value.rematerialize(target)
    # What is made anew is made for nothing, so that no copy of it is nearer.
    value = _nearest(context, value, target, reason)
    if context.manual_groups is None and (value.sharding.is_manual_subgroup() or target.is_manual_subgroup()):
        return _in_groups(context, value, target, reason)
    # Of partial results the sums alone are known to be the same along these dims, not what each device has of them.
    if value.broadcast_dims and value.reduce_kind is None:
        slices = dims_of_one_slice(value.shape, value.sharding, target, value.broadcast_dims)
        # Where the whole goes there for nothing, cutting a slice and repeating it is more ops, and saves nothing.
        if slices and context.prices.reshard_seconds(value.shape, value.sharding, target, None) > 0:
            return _as_slice(context, value, target, slices, reason)
    narrow = value.before_widening
    seconds = context.prices.move_seconds
    if narrow is not None and seconds(narrow.place, target) < seconds(value.place, target):
        return _as_narrow(context, value, narrow, target, reason)
    return _by_steps(context, value, target, reason)


def _nearest(context: Context, value: Value, target: HloSharding, reason: str) -> Value:
    """Of the value and the copies of it that lie elsewhere the one from which the target is reached for least."""
    if value.is_free:
        # It is not made anew, which was asked before, so that somebody has had it whole.
        return value.reshards[REPLICATED]
    # `copies` names the copy that readers share before it is made: to make it by way of itself would never end.
    places = () if is_partial(target) or target is value.copy else value.copies
    if not places:
        return value
    lies, prices = value.place, context.prices
    costs = [prices.move_cost(lies, place, target) for place in (value.sharding, *places)]
    nearest = min(range(len(costs)), key=lambda number: prices.comparable_seconds(costs[number]))
    return reshard(context, value, places[nearest - 1], reason) if nearest else value


def _by_steps(context: Context, value: Value, target: HloSharding, reason: str) -> Value:
    """By the planner's steps."""
    emitter, prices = context.emitter, context.prices
    kind = reduction_between(value.sharding, target, value.reduce_kind)
    steps = plan_steps(
        value.shape,
        value.sharding,
        target,
        reduce_kind=kind,
        objective=prices.objective,
        machine=prices.machine,
        num_devices=context.num_partitions,
    )
    local, written = value.local, emitter.written
    with emitter.because(reason):
        for step in steps:
            local = step.emit(emitter, local)
    if is_partial(value.sharding):
        emitter.note_partial_sums(value.local, written)
    return _copied_to(value, target, local, reduce_kind=kind if is_partial(target) else None)


def _copied_to(value: Value, target: HloSharding, local: Instruction, **more: Any) -> Value:
    """The value as it lies elsewhere; from there it can be had as it was."""
    made = Value(local, value.shape, target, broadcast_dims=value.broadcast_dims, **more)
    made.reshards[value.sharding] = value
    return made


def _as_narrow(context: Context, value: Value, narrow: Value, target: HloSharding, reason: str) -> Value:
    """Elements travel as what they were before a convert made them wider."""
    moved = reshard(context, narrow, target, reason)
    local = context.emitter.op("convert", local_shape(context, value.shape, target), (moved.local,))
    return _copied_to(value, target, local, before_widening=moved)


def _as_slice(context: Context, value: Value, target: HloSharding, dims: tuple[int, ...], reason: str) -> Value:
    """Of a value that is constant along `dims` one slice moves, and is repeated where it arrives."""
    emitter, tile = context.emitter, value.local.shape.dims
    limits = [1 if d in dims else size for d, size in enumerate(tile)]
    slim, source, wanted = one_slice_of(value.shape, value.sharding, target, dims)
    made_of = value.local
    # Less of a broadcast in place of a slice of it: nobody need make the whole one for its sake.
    if made_of.opcode == "broadcast" and not set(dims) & set(made_of.dimensions):
        one = emitter.broadcast(made_of.operands[0], limits, made_of.dimensions)
    else:
        one = emitter.slice(made_of, [0] * len(tile), limits)
    part = Value(one, slim, source, manual_groups=context.manual_groups)
    moved = reshard(context, part, wanted, reason).local
    kept = [d for d in range(len(tile)) if d not in dims]
    line = emitter.reshape(moved, [moved.shape.dims[d] for d in kept])
    return _copied_to(value, target, emitter.broadcast(line, target.tile_shape(value.shape.dims), kept))


# Manual groups


def _in_groups(context: Context, value: Value, target: HloSharding, reason: str) -> Value:
    """Between shardings of a manual region: each group by itself."""
    if not target.is_manual_subgroup():
        raise PartitionError(f"{value.sharding} cannot become {target} without leaving its manual region")
    groups = manual_groups_of(target)
    inner = context.inside(groups)
    moved = reshard(inner, _seen_from(inner, value), sharding_in_groups(target, groups), reason)
    return _seen_from(context, moved)


def seen_from(context: Context, value: AnyValue) -> AnyValue:
    """The same local arrays as this context sees them: from inside its manual region, or from outside of all."""
    if isinstance(value, TupleValue):
        return map_leaves(value, lambda part: _seen_from(context, part))
    return _seen_from(context, value)


def _seen_from(context: Context, value: Value) -> Value:
    here = context.manual_groups
    if value.manual_groups is here or value.manual_groups == here:
        return value
    if here not in value.views:
        view = _from_inside(value) if here is None else _from_outside(context, value)
        view.manual_groups = here
        view.views[value.manual_groups] = value
        value.views[here] = view
    return value.views[here]


def _from_inside(value: Value) -> Value:
    assert value.manual_groups is not None
    sharding = REPLICATED
    if value.shape.is_array:
        sharding = sharding_of_all(value.sharding, value.manual_groups, value.shape.rank)
    return Value(value.local, value.shape, sharding, value.reduce_kind)


def _from_outside(context: Context, value: Value) -> Value:
    assert context.manual_groups is not None
    if value.manual_groups is not None:
        value = _from_inside(value)
    if not value.sharding.is_manual_subgroup() and not value.sharding.is_manual():
        # What all devices compute alike is the same in every group.
        value = replicate(context.inside(None), value, "used in a manual region")
    sharding = sharding_in_groups(value.sharding, context.manual_groups)
    return Value(value.local, value.shape, sharding, value.reduce_kind)


def value_of(context: Context, inst: Instruction) -> AnyValue:
    """What an instruction became; partial sums are reduced now, on behalf of the op that made them."""
    value = reduced(context, context.values[inst], inst)
    is_plain = context.manual_groups is None and not context.decisions.has_manual_groups
    return value if is_plain else seen_from(context, value)


def array_of(context: Context, inst: Instruction) -> Value:
    """What an array instruction became."""
    value = context.values[inst]
    if not isinstance(value, Value) or value.manual_groups is not context.manual_groups:
        value = value_of(context, inst)
    if isinstance(value, TupleValue):
        raise PartitionError(f"%{inst.name} is a tuple where an array is needed", where=inst.location or None)
    return value


def arrays_of(context: Context, operands: Sequence[Instruction]) -> list[Value]:
    """What array instructions became."""
    return [array_of(context, o) for o in operands]


def deferred_operand(context: Context, operand: Instruction, reader: Instruction) -> DeferredReduction | None:
    """The operand as partial sums, if nobody but `reader`, or others that cut them, too, has a use for them and nobody
    needed their sum.
    """
    value = context.values.get(operand)
    if not isinstance(value, DeferredReduction) or value.reduced is not None or context.decisions.has_manual_groups:
        return None
    return value if (operand.users == [reader] or is_cut_up(operand)) and not operand.is_root else None


def is_cut_up(operand: Instruction) -> bool:
    """Does each of its users cut a part out of it, all together no more than there is?"""
    # Reduced one by one, parts that are no more than the whole are no more bytes.  An LSTM joins the weights of its
    # gates: with one reader alone allowed, their gradient was reduced in every trip, before it was cut.
    users = operand.users
    return all(u.opcode == "slice" for u in users) and sum(u.shape.size for u in users) <= operand.shape.size


def reduced(context: Context, value: AnyValue | DeferredReduction, maker: Instruction) -> AnyValue:
    """A value with all its reductions made; `maker`: whom they are said to be for where the value does not know."""
    if isinstance(value, DeferredReduction):
        return _reduced(context.inside(value.partial.manual_groups), value, maker)
    if isinstance(value, TupleValue) and any(isinstance(part, DeferredReduction) for part in parts_of(value)):
        return TupleValue(tuple(reduced(context, e, maker) for e in value.elements))
    return value


def _reduced(context: Context, deferred: DeferredReduction, maker: Instruction) -> Value:
    if deferred.reduced is None:
        partial = deferred.partial
        with context.emitter.on_behalf_of(deferred.maker or maker):
            reason = f"{partial.reduce_kind} of partial results"
            deferred.reduced = to_wanted(context, partial, deferred.wanted, reason)
    return deferred.reduced


def pack(context: Context, value: AnyValue) -> Instruction:
    """One local instruction for a value: tuples are built here, where something needs one."""
    if isinstance(value, Value):
        return value.local
    parts = tuple(pack(context, e) for e in value.elements if not isinstance(e, DeferredReduction))
    assert len(parts) == len(value.elements), "reductions are made before a tuple is"
    return context.emitter.op("tuple", Shape.tuple(tuple(p.shape for p in parts)), parts)


def unpack(context: Context, local: Instruction, shape: Shape, shardings: Sequence[HloSharding]) -> AnyValue:
    """Values of the leaves of a local tuple, or of one array, whose global `shape` is given."""
    return _unpack(context, local, shape, iter(shardings))


def _unpack(context: Context, local: Instruction, shape: Shape, left: Iterator[HloSharding]) -> AnyValue:
    """Consumes the shardings that are left."""
    if not shape.is_tuple:
        return Value(local, shape, next(left), manual_groups=context.manual_groups)
    parts: list[AnyValue] = []
    for index, part in enumerate(shape.tuple_shapes):
        element = context.emitter.op("get-tuple-element", local.shape.tuple_shapes[index], (local,), tuple_index=index)
        parts.append(_unpack(context, element, part, left))
    return TupleValue(tuple(parts))


def compute_whole(context: Context, inst: Instruction, why: str) -> AnyValue:
    """The last resort: every device computes the op on whole operands.  Said aloud when it costs anything.

    What has a static size is then moved where it is wanted.
    """
    warn_of_gathers(context, inst, why)
    moved = [map_leaves(value_of(context, o), lambda v: replicate(context, v)) for o in inst.operands]
    local = context.emitter.local(inst, inst.shape, [pack(context, m) for m in moved])
    made = leaves_of(unpack(context, local, inst.shape, [REPLICATED] * len(inst.shape.leaves)))
    wanted = context.wanted_leaves(inst)
    settled = [v if v.shape.dynamic_dims else to_wanted(context, v, w) for v, w in zip(made, wanted, strict=True)]
    return from_leaves(inst.shape, settled)


def warn_of_gathers(context: Context, inst: Instruction, why: str) -> None:
    """Say that an op takes whole operands, and what that gathers; nothing where it gathers nothing."""
    cost = sum(
        leaf.shape.byte_size
        for o in inst.operands
        for leaf in leaves_of(value_of(context, o))
        if leaf.sharding is not REPLICATED
    )
    if cost:
        name = f"{inst.opcode} {inst.custom_call_target}".strip()
        context.emitter.program.warnings.append(
            f"{name} at {inst.location or '%' + inst.name} is not partitioned: {why}; replicated, gathers {cost} bytes"
        )


def let_be_remade(context: Context, inst: Instruction, value: Value) -> Value:
    """The value; small row numbers or masks made of whole values never travel: where they would, each device makes all.

    JAX wraps negative row numbers by three ops, which propagation splits.  Of other types these are what is computed,
    and an op on them would be done on each device, too: of XLA's partitioner tests 18 then took more FLOPs.
    """
    is_number = inst.shape.is_array and (inst.shape.is_integral or inst.shape.element_type == "pred")
    if is_number and inst.opcode in _REMADE and value.rematerialize is None and value.reduce_kind is None:
        is_small = inst.shape.byte_size <= SMALL and is_array_in(value.sharding)
        if is_small and all(_is_everywhere(context.values[operand]) for operand in inst.operands):
            value.rematerialize = lambda target: reshard(context, _whole(context, inst, value), target)
    return value


def _is_everywhere(value: AnyValue | DeferredReduction) -> bool:
    """Can each device have all of it for nothing?"""
    return isinstance(value, Value) and value.manual_groups is None and (value.sharding is REPLICATED or value.is_free)


def _whole(context: Context, inst: Instruction, value: Value) -> Value:
    if REPLICATED not in value.reshards:
        operands = [replicate(context, array_of(context, operand)).local for operand in inst.operands]
        local = context.emitter.local(inst, inst.shape, operands)
        value.reshards[REPLICATED] = Value(local, inst.shape, REPLICATED, broadcast_dims=value.broadcast_dims)
    return value.reshards[REPLICATED]


def is_dynamic(_: Context, inst: Instruction) -> bool:
    """Does the instruction make or read an array of dynamic size?  Tuples only hold such."""
    if inst.shape.dynamic_dims:
        return inst.opcode not in PACKS
    for operand in inst.operands:
        if operand.shape.dynamic_dims:
            return inst.opcode not in PACKS
    return False


def lower_dynamic(context: Context, inst: Instruction) -> AnyValue:
    """The op on whole operands; PartitionError where a result of dynamic size is to be split."""
    if inst.is_root:
        for wanted, shape in zip(context.wanted_leaves(inst), inst.shape.leaves, strict=True):
            if shape.dynamic_dims:
                check_whole(inst, wanted)
    return compute_whole(context, inst, "a size is known only at run time")


def check_whole(inst: Instruction, wanted: HloSharding | None) -> None:
    """PartitionError where a result, or what a tuple holds, of dynamic size is to be split."""
    if wanted is not None and not wanted.is_replicated():
        raise PartitionError(
            f"%{inst.name} has a size that is known only at run time, and cannot be split",
            where=inst.location or None,
            remedy="annotate it as replicated",
        )
