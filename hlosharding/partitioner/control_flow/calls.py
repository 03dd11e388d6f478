"""Conditionals, calls and the ops that only order others: values cross the call boundary leaf by leaf, in agreed forms.

Floor: partitioner.  Branches agree on the form of each result; predicates are whole on every device.  A callee is
partitioned anew for each caller, since callers may differ.  A sum that all branches or a callee leave to be made, and
that the caller adds to others, is made there, once.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.errors import PartitionError
from hlosharding.ir import Instruction, branches
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.control_flow.call_boundary import (
    Forms,
    close_computation,
    forms_of,
    open_computation,
    unpacked,
)
from hlosharding.partitioner.partial_sums import may_wait
from hlosharding.partitioner.regions import MANUAL, note_synced_condition
from hlosharding.partitioner.resharding import array_of, pack, replicate, reshard_leaves, unpack, value_of
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Form, Value, leaves_of, parts_of
from hlosharding.sharding import REPLICATED, HloSharding

Shardings = tuple[HloSharding, ...]


def conditional(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """Each branch over local shapes; the predicate is whole, so that all devices take the same branch."""
    chooser = array_of(context, inst.operands[0])
    if chooser.sharding is not MANUAL:
        chooser = replicate(context, chooser, "branch index")
    operands, opened = [chooser.local], []
    for branch, operand in branches(inst):
        value = value_of(context, operand)
        taken = _parameter_shardings(context, branch.parameters[0], value)
        value = reshard_leaves(context, value, taken, "branch operand")
        opened.append(open_computation(context, branch, (forms_of(taken),)))
        operands.append(pack(context, value))
    forms = _result_forms(context, inst, opened)
    called = [close_computation(inner, branch, forms) for inner, branch in zip(opened, inst.called, strict=True)]
    local = context.emitter.computation.add("conditional", called[0].root.shape, operands, like=inst, called=called)
    note_synced_condition(context, local, chooser.sharding)
    return unpacked(context, local, inst.shape, forms)


def _result_forms(context: Context, inst: Instruction, opened: Sequence[Context]) -> Forms:
    """Of each result leaf: partial sums where branches leave some and the caller adds them up, else the whole."""
    wanted = [w if w is not None else REPLICATED for w in context.wanted_leaves(inst)]
    roots = [parts_of(inner.values[branch.root]) for inner, branch in zip(opened, inst.called, strict=True)]
    leaves = zip(wanted, zip(*roots, strict=True), strict=True)
    return tuple(_result_form(context, inst, n, w, parts) for n, (w, parts) in enumerate(leaves))


def _result_form(
    context: Context, inst: Instruction, index: int, wanted: HloSharding, parts: Sequence[Value | DeferredReduction]
) -> Form:
    deferred = [p for p in parts if isinstance(p, DeferredReduction) and p.reduced is None]
    forms = {(p.partial.sharding, p.partial.reduce_kind) for p in deferred}
    # Branches that owe nothing, or have reduced it, hand on the whole as one device's partial sum (`in_forms`).
    if len(forms) != 1 or context.decisions.has_manual_groups or not _sum_follows(context, inst, index):
        return Form(wanted)
    return Form(deferred[0].partial.sharding, deferred[0].partial.reduce_kind, wanted, deferred[0].maker)


def _sum_follows(context: Context, inst: Instruction, index: int) -> bool:
    """Is leaf `index` of the result read once, by an op that had better add up partial sums?"""
    found = inst
    if inst.shape.is_tuple:
        readers = context.decisions.readers.of(inst, index)
        # Only then is the number of a leaf that of an element.
        flat = len(inst.shape.leaves) == len(inst.shape.tuple_shapes)
        if not flat or len(readers) != 1 or not context.decisions.readers.is_only(readers[0]):
            return False
        found = readers[0]
    return may_wait(context, found)


def _parameter_shardings(context: Context, parameter: Instruction, value: AnyValue) -> Shardings:
    """A parameter's own sharding where propagation gave one, else what the caller's operand has."""
    wanted = context.wanted_leaves(parameter)
    return tuple(w if w is not None else v.whole_sharding for w, v in zip(wanted, leaves_of(value), strict=True))


def call(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """The callee over local shapes."""
    callee = inst.called[0]
    values = [value_of(context, o) for o in inst.operands]
    taken = [_parameter_shardings(context, p, v) for p, v in zip(callee.parameters, values, strict=True)]
    moved = [reshard_leaves(context, v, t, "argument of a call") for v, t in zip(values, taken, strict=True)]
    opened = open_computation(context, callee, [forms_of(t) for t in taken])
    forms = _result_forms(context, inst, [opened])
    body = close_computation(opened, callee, forms)
    local = context.emitter.computation.add(
        "call", body.root.shape, [pack(context, m) for m in moved], like=inst, called=[body]
    )
    return unpacked(context, local, inst.shape, forms)


def barrier(context: Context, inst: Instruction) -> AnyValue:
    """An optimization barrier around local values."""
    value = value_of(context, inst.operands[0])
    shardings = [v.whole_sharding for v in leaves_of(value)]
    value = reshard_leaves(context, value, shardings, "operand of a barrier")
    packed = pack(context, value)
    local = context.emitter.local(inst, packed.shape, (packed,))
    made = unpack(context, local, inst.shape, shardings)
    return reshard_leaves(context, made, context.wanted_leaves(inst))


def token(context: Context, inst: Instruction) -> AnyValue:
    """Ordering ops work on whatever their operands became."""
    operands = [pack(context, value_of(context, o)) for o in inst.operands]
    if inst.opcode == "add-dependency":
        value = array_of(context, inst.operands[0])
        return Value(context.emitter.local(inst, operands[0].shape, operands), inst.shape, value.sharding)
    return Value(context.emitter.local(inst, inst.shape, operands), inst.shape, REPLICATED)


def per_device(context: Context, inst: Instruction) -> AnyValue:
    """partition-id and replica-id: XLA allows them only where code is per device already."""
    raise PartitionError(
        f"{inst.opcode} has no meaning in a program that is still to be partitioned",
        where=inst.where,
        remedy="use it inside a manual (shard_map) region",
    )
