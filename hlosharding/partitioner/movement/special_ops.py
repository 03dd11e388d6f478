"""Ops that hand values on (tuples, their elements, copies: no op is made until something needs one), and those that are
lowered by their factors but for one thing (convert, the all-reduce of a global program).

Floor: partitioner.
"""

from __future__ import annotations

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors import lower_by_factors, lower_by_signature
from hlosharding.partitioner.resharding import (
    array_of,
    check_whole,
    compute_whole,
    deferred_operand,
    reduced,
    reshard,
    reshard_leaves,
    seen_from,
    value_of,
)
from hlosharding.partitioner.value import (
    AnyValue,
    DeferredReduction,
    TupleValue,
    Value,
    from_parts,
    parts_of,
)
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Devices, device_groups


def pack_elements(context: Context, inst: Instruction) -> AnyValue:
    """Elements are kept apart; a sharding given to the tuple binds each.  A sum that only the tuple has can wait."""
    parts = [(o, part) for o in inst.operands for part in _parts_for(context, o, inst)]
    wanted = context.wanted_leaves(inst)
    moved = [_tuple_part(context, o, part, w) for (o, part), w in zip(parts, wanted, strict=True)]
    made = from_parts(inst.shape, moved)
    assert isinstance(made, TupleValue)
    return made


def _parts_for(context: Context, operand: Instruction, reader: Instruction) -> tuple[Value | DeferredReduction, ...]:
    """The operand's arrays; those are partial sums whose sums nobody but the reader can need."""
    value = context.values[operand]
    if not isinstance(value, TupleValue) or not _is_readers_own(context, operand, reader):
        return parts_of(deferred_operand(context, operand, reader) or value_of(context, operand))
    # A sum that somebody needed is there: nobody makes it twice.
    return tuple(
        p.reduced if isinstance(p, DeferredReduction) and p.reduced is not None else p for p in parts_of(value)
    )


def _is_readers_own(context: Context, operand: Instruction, reader: Instruction) -> bool:
    return operand.users == [reader] and not operand.is_root and not context.decisions.has_manual_groups


def _tuple_part(
    context: Context, operand: Instruction, part: Value | DeferredReduction, wanted: HloSharding | None
) -> Value | DeferredReduction:
    if isinstance(part, DeferredReduction):
        return DeferredReduction(part.partial, wanted if wanted is not None else part.wanted, part.maker or operand)
    if part.shape.dynamic_dims:
        check_whole(operand, wanted)
    return reshard(context, part, wanted if wanted is not None else part.whole_sharding, "tuple element")


def take_element(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """What the tuple holds there; a sum that only this element's reader can need still waits."""
    source = context.values[inst.operands[0]]
    assert isinstance(source, TupleValue)
    element = source.elements[inst.tuple_index]
    if isinstance(element, DeferredReduction) and context.decisions.readers.is_only(inst):
        wanted = context.wanted_leaves(inst)[0]
        return DeferredReduction(element.partial, wanted if wanted is not None else element.wanted, element.maker)
    owes = any(isinstance(part, DeferredReduction) for part in parts_of(element))
    if owes and context.decisions.readers.is_only(inst) and not context.decisions.has_manual_groups:
        return element
    if owes or context.decisions.has_manual_groups:
        element = seen_from(context, reduced(context, element, inst.operands[0]))
    assert not isinstance(element, DeferredReduction)
    return reshard_leaves(context, element, context.wanted_leaves(inst))


def copy(context: Context, inst: Instruction) -> AnyValue:
    """A copy (often a former annotation) is its operand in the copy's sharding; no op is needed."""
    return reshard_leaves(context, value_of(context, inst.operands[0]), context.wanted_leaves(inst))


def convert(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """As other elementwise ops; what was widened can travel as what it was before."""
    source = array_of(context, inst.operands[0])
    made = lower_by_signature(context, inst)
    if isinstance(made, Value) and source.shape.byte_size < made.shape.byte_size:
        made.before_widening = source
    return made


def all_reduce(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """Outside manual regions: across replicas, of which there is one; else of what each device has, which is all."""
    signature = signature_of(inst)
    if inst.channel_id and context.num_partitions > 1:
        if _is_alone(context, inst):
            return copy(context, inst)
        return compute_whole(context, inst, "it adds up what each of its devices has of a global value, all of it")
    assert isinstance(signature, Signature)
    return lower_by_factors(context, inst, signature)


def _is_alone(context: Context, inst: Instruction) -> bool:
    """Is every device alone, as in a `psum` over a mesh axis of size 1?"""
    groups = device_groups(inst, Devices(context.num_partitions))
    return inst.shape.is_array and all(len(group) == 1 for group in groups)
