"""How each op is partitioned: one table from opcode to strategy.

Floor: partitioner.  What is not in the table is lowered from its signature (`lower_by_factors`); what has no signature
is computed whole on every device, with a warning that names it.
"""

from __future__ import annotations

from collections.abc import Callable

from hlosharding.ir import COLLECTIVES, Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.control_flow import calls, loops, scan
from hlosharding.partitioner.factors import (
    FAST_ELEMENTWISE,
    compute_whole,
    is_only_reader,
    lower_aligned_elementwise,
    lower_by_factors,
    pass_through,
)
from hlosharding.partitioner.movement import data_movement, generators, reshapes
from hlosharding.partitioner.regions import (
    custom_partitioning,
    dynamic_sizes,
    host_offload,
    infeed_outfeed,
    manual,
    one_device,
)
from hlosharding.partitioner.value import (
    AnyValue,
    DeferredReduction,
    TupleValue,
    Value,
    from_leaves,
    from_parts,
    leaves_of,
    parts_of,
)
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding

Strategy = Callable[[Context, Instruction], AnyValue | DeferredReduction]


def _tuple(context: Context, inst: Instruction) -> AnyValue:
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
        return parts_of(context.waiting(operand, reader) or context.value(operand))
    return tuple(
        p.settled if isinstance(p, DeferredReduction) and p.settled is not None else p for p in parts_of(value)
    )


def _is_readers_own(context: Context, operand: Instruction, reader: Instruction) -> bool:
    return operand.users == [reader] and not operand.is_root and not context.decisions.has_manual_groups


def _tuple_part(
    context: Context, operand: Instruction, part: Value | DeferredReduction, wanted: HloSharding | None
) -> Value | DeferredReduction:
    if isinstance(part, DeferredReduction):
        return DeferredReduction(part.partial, wanted if wanted is not None else part.wanted, part.maker or operand)
    if part.shape.dynamic_dims:
        dynamic_sizes.check_whole(operand, wanted)
    return context.reshard(part, wanted if wanted is not None else part.whole_sharding, "tuple element")


def _element(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    source = context.values[inst.operands[0]]
    assert isinstance(source, TupleValue)
    element = source.elements[inst.tuple_index]
    if isinstance(element, DeferredReduction) and is_only_reader(inst):
        wanted = context.wanted_leaves(inst)[0]
        return DeferredReduction(element.partial, wanted if wanted is not None else element.wanted, element.maker)
    owes = any(isinstance(part, DeferredReduction) for part in parts_of(element))
    if owes and is_only_reader(inst) and not context.decisions.has_manual_groups:
        return element
    if owes or context.decisions.has_manual_groups:
        source = context.value(inst.operands[0])
        assert isinstance(source, TupleValue)
        element = source.elements[inst.tuple_index]
    assert not isinstance(element, DeferredReduction)
    return _as_wanted(context, inst, element)


def _as_wanted(context: Context, inst: Instruction, value: AnyValue) -> AnyValue:
    """The value itself, moved where the instruction's sharding says."""
    wanted = context.wanted_leaves(inst)
    made = [context.settle(v, w) for v, w in zip(leaves_of(value), wanted, strict=True)]
    return from_leaves(value.shape, made)


def _copy(context: Context, inst: Instruction) -> AnyValue:
    """A copy (often a former annotation) is its operand in the copy's sharding; no op is needed."""
    return _as_wanted(context, inst, context.value(inst.operands[0]))


def _convert(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """As other elementwise ops; what was widened can travel as what it was before."""
    signature, source = signature_of(inst), context.array(inst.operands[0])
    assert isinstance(signature, Signature)
    made = lower_by_factors(context, inst, signature)
    if isinstance(made, Value) and source.shape.byte_size < made.shape.byte_size:
        made.narrow = source
    return made


def _all_reduce(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """Outside manual regions: across replicas, of which there is one; else of what each device has, which is all."""
    signature = signature_of(inst)
    if inst.channel_id and context.num_partitions > 1:
        if _adds_nothing(inst):
            return _copy(context, inst)
        return compute_whole(context, inst, "it adds up what each of its devices has of a global value, all of it")
    assert isinstance(signature, Signature)
    return lower_by_factors(context, inst, signature)


def _adds_nothing(inst: Instruction) -> bool:
    """Is every device alone, as in a `psum` over a mesh axis of size 1?"""
    return inst.shape.is_array and {len(group) for group in inst.replica_groups} == {1}


STRATEGIES: dict[str, Strategy] = {
    "tuple": _tuple,
    "get-tuple-element": _element,
    "copy": _copy,
    "convert": _convert,
    "constant": generators.constant,
    "iota": generators.iota,
    "broadcast": generators.broadcast,
    "rng": generators.random,
    "reshape": reshapes.reshape,
    "slice": data_movement.move,
    "pad": data_movement.move,
    "concatenate": data_movement.move,
    "reverse": data_movement.move,
    "dynamic-slice": data_movement.move,
    "dynamic-update-slice": data_movement.move,
    "while": loops.while_loop,
    "scan": scan.scan,
    "conditional": calls.conditional,
    "call": calls.call,
    "opt-barrier": calls.barrier,
    "infeed": infeed_outfeed.infeed,
    "outfeed": infeed_outfeed.outfeed,
    "after-all": calls.token,
    "add-dependency": calls.token,
    "all-reduce": _all_reduce,
    "partition-id": calls.per_device,
    "replica-id": calls.per_device,
}


# Values only pass through these; their parts and bodies see to themselves.
_SAME_IN_MANUAL_REGIONS = frozenset({"tuple", "get-tuple-element", "copy", "while", "conditional", "call"})


def lower(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """Partition one instruction whose operands are partitioned."""
    if inst.opcode in FAST_ELEMENTWISE and (value := lower_aligned_elementwise(context, inst)) is not None:
        return value
    manual_groups, written = manual.region_of(context, inst), context.emitter.written
    made = _lower(context.inside(manual_groups), inst) if manual_groups is not None else _lower(context, inst)
    for part in () if isinstance(made, Value) else parts_of(made):
        if isinstance(part, DeferredReduction):
            context.emitter.owes(part.partial.local, written)
    if isinstance(made, DeferredReduction) or inst.id not in context.shardings:
        context.emitter.program.undecided[inst] = made
    return made if manual_groups is None else manual.stamped(made, manual_groups)


def _lower(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    context.emitter.lowering(inst)
    partial_sums = pass_through(context, inst)
    if partial_sums is not None:
        return partial_sums
    is_call = inst.opcode == "custom-call"
    if is_call and manual.is_boundary_call(inst):
        return manual.cross_boundary(context, inst)
    if manual.is_manual(context, inst) and inst.opcode not in _SAME_IN_MANUAL_REGIONS:
        return manual.take_over(context, inst)
    if context.manual_groups is not None and inst.opcode in COLLECTIVES:
        return manual.communicate(context, inst, context.manual_groups)
    if host_offload.is_move(inst):
        return host_offload.move(context, inst)
    device = one_device.acting_device(context, inst) if is_call else None
    if device is not None:
        return one_device.act_once(context, inst, device)
    if dynamic_sizes.is_dynamic(inst):
        return dynamic_sizes.lower_dynamic(context, inst)
    if inst.opcode == "call" and custom_partitioning.is_marked(inst):
        return custom_partitioning.lower_marked(context, inst)
    strategy = STRATEGIES.get(inst.opcode)
    if strategy is not None:
        return strategy(context, inst)
    signature = signature_of(inst)
    if isinstance(signature, Signature):
        return lower_by_factors(context, inst, signature)
    return compute_whole(context, inst, getattr(signature, "reason", "no rule is known for it"))
