"""Lowering an op with a signature: choose a split, bring the operands there, compute locally, reduce partial results.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.ir import ELEMENTWISE, Instruction
from hlosharding.partitioner.broadcast_dims import common_dims
from hlosharding.partitioner.choice import FactorChoice, Lowering
from hlosharding.partitioner.context import Context, PlanContext
from hlosharding.partitioner.factors.collective_matmul import collective_matmul_for, emit_collective_matmul
from hlosharding.partitioner.factors.lowering_choice import Places, lowering_of
from hlosharding.partitioner.local_ops import LocalOp, combined, custom_reduction_of, local_rule
from hlosharding.partitioner.resharding import (
    arrays_of,
    compute_whole,
    local_shape,
    reshard,
    reshard_leaves,
    to_wanted,
    unpack,
)
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, from_leaves, leaves_of, places_of
from hlosharding.rules import Reduce, Signature, signature_of
from hlosharding.sharding import HloSharding, member_numbers, without_partials
from hlosharding.spmd import identity, mask_padding, only_first

# A copy is no op here, a convert remembers what it was made of, and a bitcast may have a dim more than its operand.
FAST_ELEMENTWISE = ELEMENTWISE - {"copy", "convert", "bitcast-convert"}


def lower_by_signature(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """By the factors of its signature; whole on every device, with a warning, where it has none."""
    known = context.decisions.ops.get(inst)
    signature = signature_of(inst) if known is None else known.signatures[0]
    if isinstance(signature, Signature):
        return lower_by_factors(context, inst, signature)
    return compute_whole(context, inst, getattr(signature, "reason", "no rule is known for it"))


def lower_by_factors(context: Context, inst: Instruction, signature: Signature) -> AnyValue | DeferredReduction:
    """The strategy for every op with a signature.

    An array of partial sums is left as a deferred reduction: its user may want less than the sum for all.
    """
    values = arrays_of(context, inst.operands)
    wanted = wanted_of(context, inst)
    lowering = context.plans[inst] = lowering_of(context, inst, signature, places_of(values), wanted)
    results = _computed(context, inst, lowering, values)
    if results[0].reduce_kind is not None and not inst.shape.is_tuple:
        return DeferredReduction(results[0], wanted[0])
    kind = lowering.choice.reduce_kind
    reason = f"{kind} of partial results" if kind else "reshard result"
    if not inst.shape.is_tuple:
        return to_wanted(context, results[0], wanted[0], reason)
    return reshard_leaves(context, from_leaves(inst.shape, results), wanted, reason)


def plan_by_signature(
    context: PlanContext, inst: Instruction, operands: Places, wanted: HloSharding | None
) -> Lowering | None:
    """How `lower_by_signature` splits an op of one result, whose operands lie so."""
    signature = signature_of(inst)
    return lowering_of(context, inst, signature, operands, (wanted,)) if isinstance(signature, Signature) else None


def choice_of(context: PlanContext, inst: Instruction, signature: Signature, operands: Places) -> FactorChoice:
    """How `lower_by_factors` would split an instruction with operands that lie so."""
    return lowering_of(context, inst, signature, operands, wanted_of(context, inst)).choice


def wanted_of(context: PlanContext, inst: Instruction) -> tuple[HloSharding | None, ...]:
    """The sharding of each result leaf; where a tuple has none, that of the element taken from it."""
    wanted = context.wanted_leaves(inst)
    if not inst.shape.is_tuple or None not in wanted:
        return wanted
    taken = {u.tuple_index: context.wanted_leaves(u)[0] for u in inst.users if u.opcode == "get-tuple-element"}
    return tuple(taken.get(n) if w is None else w for n, w in enumerate(wanted))


def _computed(context: Context, inst: Instruction, lowering: Lowering, values: list[Value]) -> list[Value]:
    """The result leaves, partial results among them."""
    rule, loop = local_rule(inst.opcode), collective_matmul_for(context, inst, lowering, values)
    operands = _local_operands(context, inst, lowering, values, None if loop is None else loop.operand)
    if loop is not None:
        return [emit_collective_matmul(context, loop, operands)]
    op = LocalOp(inst, lowering.choice, operands, lowering.shapes)
    local = rule.emit(context.emitter, op)
    if lowering.choice.reduce_kind == "other":
        return _custom_reduced(context, op, local)
    return _results(context, inst, lowering, local)


def _local_operands(
    context: Context, inst: Instruction, lowering: Lowering, values: list[Value], unmoved: int | None
) -> tuple[Instruction, ...]:
    """The operands where the choice wants them, all but the operand `unmoved`."""
    moved = [
        value if value.sharding is target or number == unmoved else reshard(context, value, target, f"operand {number}")
        for number, (value, target) in enumerate(zip(values, lowering.choice.operands, strict=True))
    ]
    if lowering.is_plain:
        return tuple(v.local for v in moved)
    return tuple(_prepared(context, inst, i, v, lowering) for i, v in enumerate(moved))


def _prepared(context: Context, inst: Instruction, index: int, value: Value, lowering: Lowering) -> Instruction:
    """An operand as the local op may use it: padding masked where it would be mixed in, and what must enter the result
    once on the first device of each group only.
    """
    choice, factors = lowering.choice, lowering.choice.signature.factors
    for factor in choice.deferred:
        owes = factors[factor].owes
        # An initial value of an unknown reducer is its identity, as XLA demands: it may enter every partial result.
        if isinstance(owes, Reduce) and index in owes.once and owes.kind != "other":
            members = member_numbers(choice.results[0], context.num_partitions)
            return only_first(context.emitter, value.local, members, owes.kind)
    dims = lowering.masked[index]
    if not dims:
        return value.local
    kind = next(o.kind for f in factors if isinstance(o := f.owes, Reduce))
    if kind == "other":
        reduction = custom_reduction_of(inst)
        assert reduction is not None, "only such ops are split where partial results are of an unknown kind"
        fill = reduction.padding(context, inst, index)
    else:
        fill = identity(kind, value.shape)
    return mask_padding(context.emitter, value.local, value.shape, value.sharding, dims, fill)


def _custom_reduced(context: Context, op: LocalOp, local: Instruction) -> list[Value]:
    """The result leaves of an op that combines its own partial results."""
    reduction = custom_reduction_of(op.inst)
    assert reduction is not None, "only such ops have partial results of an unknown kind"
    found = combined(context.emitter, op, reduction, local)
    leaves = zip(found, op.inst.shape.leaves, op.choice.results, strict=True)
    return [Value(leaf, shape, without_partials(partial)) for leaf, shape, partial in leaves]


def _results(context: Context, inst: Instruction, lowering: Lowering, local: Instruction) -> list[Value]:
    choice = lowering.choice
    if not inst.shape.is_tuple:
        known = lowering.broadcast_dims[0]
        return [Value(local, inst.shape, choice.results[0], choice.reduce_kind, broadcast_dims=known)]
    made: Sequence[Value] = leaves_of(unpack(context, local, inst.shape, list(choice.results)))
    for value, broadcast_dims in zip(made, lowering.broadcast_dims, strict=True):
        value.reduce_kind = choice.reduce_kind if value.whole_sharding is not value.sharding else None
        value.broadcast_dims = broadcast_dims
    return list(made)


def lower_aligned_elementwise(context: Context, inst: Instruction) -> Value | None:
    """The op of an opcode in `FAST_ELEMENTWISE` on tiles; None where an operand is sharded otherwise, or partial.

    Most ops: one element after the other, all operands with the sharding that the result shall have.  Nothing moves and
    nothing is to be decided.
    """
    given = context.shardings.get(inst.id)
    # This way round all choices saves a fifth of partitioning.
    if given is None or context.decisions.has_manual_groups or context.manual_groups is not None:
        return None
    sharding, shape, values = given.meaning, inst.shape, context.values
    # On unreduced tiles the op would be done on terms, before they are summed.
    if (sharding.kind != "tiled" and sharding.kind != "replicated") or "unreduced" in sharding.subgroup_types:
        return None
    locals_, tile, broadcast_dims = [], None, None
    for operand in inst.operands:
        value = values[operand]
        if type(value) is not Value or value.sharding is not sharding or value.reduce_kind is not None:
            return None
        locals_.append(value.local)
        broadcast_dims = (
            value.broadcast_dims
            if broadcast_dims is None
            else broadcast_dims and common_dims(broadcast_dims, value.broadcast_dims)
        )
        # Shapes are interned: an operand of the same one has the tile's shape already.
        if value.shape is shape:
            tile = value.local.shape
    made = context.emitter.local(inst, tile or local_shape(context, shape, sharding), locals_)
    return Value(made, shape, sharding, broadcast_dims=broadcast_dims or ())
