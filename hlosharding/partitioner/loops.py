"""While loops: one form of the carry for init, body and condition; sums that a body only accumulates are made after it.

Floor: partitioner.  A carry that goes through linear ops alone (a gradient summed over microbatches) may be carried as
addends: the body adds what each device has, and one reduction follows the loop instead of one in every trip.  The
initial value is then one device's addend, so no trips at all are right, too.  The forms are a fixed point: the body is
tried with whole carries, then with those that met addends carried as such, until what it takes and makes agree.  A
carry stays whole where it is read otherwise, where its addends take more memory than their sum (gradients of fully
sharded parameters), and where narrow floats could overflow.
"""

from __future__ import annotations

from hlosharding.cost import trip_count
from hlosharding.ir import Computation, Instruction
from hlosharding.partitioner.borders import (
    Forms,
    close_computation,
    forms_of,
    in_forms,
    is_pending_as,
    open_computation,
    partition_computation,
    unpacked,
)
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.manual import alike, is_manual
from hlosharding.partitioner.partials import accumulators, found_owed, may_accumulate
from hlosharding.partitioner.projection import REPLICATED
from hlosharding.partitioner.value import AnyValue, Form, Pending, Value, parts_of


def while_loop(context: Context, inst: Instruction) -> AnyValue | Pending:
    """Body and condition over local shapes; collectives inside repeat each trip."""
    body, condition = _loop_computations(inst)
    forms, local_body = _local_body(context, inst, body, condition)
    context.emitter.lowering(inst)
    packed = context.pack(in_forms(context, inst.operands[0], forms, "loop carry"))
    local_condition = partition_computation(context, condition, (forms,), forms_of((alike(context, condition.root),)))
    called = [local_condition if c is condition else local_body for c in inst.called]
    local = context.emitter.computation.add("while", packed.shape, (packed,), like=inst, called=called)
    return unpacked(context, local, inst.shape, forms)


def _loop_computations(inst: Instruction) -> tuple[Computation, Computation]:
    """(body, condition); only the condition's root is a scalar predicate, unless the carry itself is one."""
    first, second = inst.called
    carried = str(inst.shape)
    if str(first.root.shape) == carried and str(second.root.shape) == "pred[]" and carried != "pred[]":
        return first, second
    if str(second.root.shape) == carried and str(first.root.shape) == "pred[]" and carried != "pred[]":
        return second, first
    return first, second


def _local_body(
    context: Context, inst: Instruction, body: Computation, condition: Computation
) -> tuple[Forms, Computation]:
    """The body, and the forms of the carry that it takes and makes."""
    plain = forms_of([w if w is not None else REPLICATED for w in context.wanted_leaves(inst)])
    elements = _accumulators(context, inst, body, condition)
    known = context.decisions.loops.get(inst)
    forms, hopeful = known or plain, frozenset(elements.values() if known is None else ())
    program = context.emitter.program
    while True:
        before = program.mark()
        tried = open_computation(context, body, (forms,), hopeful)
        better, wasted = _improved(tried, body, elements, plain, forms)
        if better == forms and not (hopeful and wasted):
            context.decisions.loops[inst] = forms
            return forms, close_computation(tried, body, forms)
        program.back_to(before)
        forms, hopeful = better, frozenset()


def _accumulators(
    context: Context, inst: Instruction, body: Computation, condition: Computation
) -> dict[int, Instruction]:
    """By its place in the carry, the element of each accumulator as the body reads it."""
    if context.decisions.has_worlds or is_manual(context, inst) or trip_count(inst) == (1, True):
        return {}
    readers = condition.parameters[0].users
    if not inst.shape.is_tuple or any(u.opcode != "get-tuple-element" for u in readers):
        return {}
    return accumulators(body.parameters[0], body.root, frozenset(u.tuple_index for u in readers))


def _improved(
    tried: Context, body: Computation, elements: dict[int, Instruction], plain: Forms, forms: Forms
) -> tuple[Forms, bool]:
    """Forms that suit what the body did, and: did it keep addends for a carry that is not to be pending?"""
    better, wasted = list(forms), False
    for index, element in elements.items():
        if forms[index].owed is None:
            found = next(found_owed(tried, element, body.root), None)
            form = None if found is None else _owed_form(tried, plain[index], *found)
            wasted |= found is not None and form is None
            better[index] = form or plain[index]
        elif not is_pending_as(parts_of(tried.values[body.root])[index], forms[index]):
            better[index] = plain[index]
    return tuple(better), wasted


def _owed_form(tried: Context, plain: Form, maker: Instruction, found: Value) -> Form | None:
    """The form of an accumulator of such addends; None where it had better be whole."""
    if found.reduce_kind is None or not may_accumulate(found):
        return None
    addends, total = (tried.local_shape(found.shape, s).byte_size for s in (found.sharding, plain.sharding))
    return Form(found.sharding, found.reduce_kind, plain.sharding, maker) if addends <= total else None
