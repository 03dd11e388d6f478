"""How each op is partitioned: one table from opcode to strategy.

Floor: partitioner.  What is not in the table is lowered from its signature (`lower_declared`); what has no signature is
computed whole on every device, with a warning that names it.
"""

from __future__ import annotations

from collections.abc import Callable

from hlosharding.ir import Instruction
from hlosharding.partitioner import (
    control_flow,
    created,
    indexing,  # noqa: F401  (fills PIECES)
    manual,
    reducing,  # noqa: F401  (fills PIECES)
    reshaping,
    reversing,
    rotating,
)
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.declared import compute_whole, lower_declared
from hlosharding.partitioner.partials import pass_through
from hlosharding.partitioner.value import AnyValue, Pending, TupleValue, from_leaves, leaves_of
from hlosharding.rules import Signature, signature_of

Strategy = Callable[[Context, Instruction], AnyValue | Pending]


def _tuple(context: Context, inst: Instruction) -> AnyValue:
    """Elements are kept apart; a sharding given to the tuple binds each."""
    made = TupleValue(tuple(context.value(o) for o in inst.operands))
    wanted = context.wanted_leaves(inst)
    targets = [w if w is not None else v.whole_sharding for w, v in zip(wanted, made.leaves, strict=True)]
    return context.reshard_leaves(made, targets, "tuple element")


def _element(context: Context, inst: Instruction) -> AnyValue:
    source = context.value(inst.operands[0])
    assert isinstance(source, TupleValue)
    return _as_wanted(context, inst, source.elements[inst.tuple_index])


def _as_wanted(context: Context, inst: Instruction, value: AnyValue) -> AnyValue:
    """The value itself, moved where the instruction's sharding says."""
    wanted = context.wanted_leaves(inst)
    made = [context.settle(v, w) for v, w in zip(leaves_of(value), wanted, strict=True)]
    return from_leaves(value.shape, made)


def _copy(context: Context, inst: Instruction) -> AnyValue:
    """A copy (often a former annotation) is its operand in the copy's sharding; no op is needed."""
    return _as_wanted(context, inst, context.value(inst.operands[0]))


STRATEGIES: dict[str, Strategy] = {
    "tuple": _tuple,
    "get-tuple-element": _element,
    "copy": _copy,
    "constant": created.constant,
    "iota": created.iota,
    "broadcast": created.broadcast,
    "reshape": reshaping.reshape,
    "reverse": reversing.reverse,
    "concatenate": rotating.concatenate,
    "while": control_flow.while_loop,
    "conditional": control_flow.conditional,
    "call": control_flow.call,
    "opt-barrier": control_flow.barrier,
    "after-all": control_flow.token,
    "add-dependency": control_flow.token,
    "partition-id": control_flow.per_device,
    "replica-id": control_flow.per_device,
}


# Values only pass through these; their parts and bodies see to themselves.
_SAME_IN_MANUAL_REGIONS = frozenset({"tuple", "get-tuple-element", "copy", "while", "conditional", "call"})


def lower(context: Context, inst: Instruction) -> AnyValue | Pending:
    """Partition one instruction whose operands are partitioned."""
    context.emitter.lowering(inst)
    addends = pass_through(context, inst)
    if addends is not None:
        return addends
    if manual.is_border(inst):
        return manual.cross_border(context, inst)
    if manual.is_manual(context, inst) and inst.opcode not in _SAME_IN_MANUAL_REGIONS:
        return manual.take_over(context, inst)
    strategy = STRATEGIES.get(inst.opcode)
    if strategy is not None:
        return strategy(context, inst)
    signature = signature_of(inst)
    if isinstance(signature, Signature):
        return lower_declared(context, inst, signature)
    return compute_whole(context, inst, getattr(signature, "reason", "no rule is known for it"))
