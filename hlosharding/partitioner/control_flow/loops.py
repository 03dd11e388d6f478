"""While loops: one form of the carry for init, body and condition; sums that a body only accumulates are made after it.

Floor: partitioner.  A carry that goes through linear ops alone (a gradient summed over microbatches) may be carried as
partial sums: the body adds what each device has, and one reduction follows the loop instead of one in every trip.  The
initial value is then one device's partial sum, so no trips at all are right, too.  The forms are a fixed point: the
body is tried with whole carries, then with those that met partial sums carried as such, until what it takes and makes
agree.  A carry stays whole where it is read otherwise and where narrow floats could overflow.  Where its partial sums
take more memory than their sum (gradients of sharded parameters) each trip's are summed over the devices that share it;
over the others, if there are any, they wait.
"""

from __future__ import annotations

from hlosharding.ir import Computation, Instruction, hands_on, trip_count, while_parts
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.control_flow.call_boundary import (
    Forms,
    close_computation,
    forms_of,
    in_forms,
    is_deferred_as,
    open_computation,
    partition_computation,
    unpacked,
)
from hlosharding.partitioner.partial_sums import (
    Paths,
    accumulators,
    deferred_sums,
    is_awaited,
    is_wanted_partial,
    may_accumulate,
    only_stacks,
    sums_over_some,
)
from hlosharding.partitioner.prices import SMALL
from hlosharding.partitioner.regions import alike, is_manual, note_synced_condition
from hlosharding.partitioner.resharding import local_shape, pack
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Form, Value, parts_of
from hlosharding.sharding import REPLICATED, copies_as_partials, without_partials


def while_loop(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """Body and condition over local shapes; collectives inside repeat each trip."""
    body, condition = while_parts(inst)
    forms, local_body = _local_body(context, inst, body, condition)
    context.emitter.lowering(inst)
    packed = pack(context, in_forms(context, inst.operands[0], forms, "loop carry"))
    asked = alike(context, condition.root)
    local_condition = partition_computation(context, condition, (forms,), forms_of((asked,)))
    called = (local_body, local_condition)
    local = context.emitter.computation.add("while", packed.shape, (packed,), like=inst, called=called)
    note_synced_condition(context, local, asked)
    return unpacked(context, local, inst.shape, forms)


def _local_body(
    context: Context, inst: Instruction, body: Computation, condition: Computation
) -> tuple[Forms, Computation]:
    """The body, and the forms of the carry that it takes and makes: a fixed point, found by trying.

    A loop that sums gradients over microbatches, `(i, g) -> (i + 1, g + dw)`, with `dw` a partial sum over 8 devices:

        tried with      the body makes          so
        g whole         g + dw, a partial sum   try g as partial sums
        g partial       g + dw, a partial sum   fixed: one all-reduce, after the loop

    An accumulator that turns out to be read otherwise becomes whole again, and stays so.  One whose partial sums are
    wanted behind the loop is tried as such first.
    """
    plain = forms_of([w if w is not None else REPLICATED for w in context.wanted_leaves(inst)])
    paths = _accumulators(context, inst, body, condition)
    forms = context.decisions.loop_forms.get(inst)
    if forms is None:
        # Else the first walk of each backward body is thrown away: a plan of four stages of a scanned Llama took 1.54
        # CPU seconds in place of 1.28.
        forms = tuple(_wanted_form(form) if leaf in paths else form for leaf, form in enumerate(plain))
    else:  # found before, when the loop around this one was tried
        paths = {leaf: path for leaf, path in paths.items() if forms[leaf].deferred is not None}
    program = context.emitter.program
    while True:
        before = program.mark()
        deferring = frozenset(i for path in paths.values() for i in path)
        tried = open_computation(context, body, (forms,), deferring, _same_in_all_trips(inst, body))
        better, hopes, is_fixed = _improved(tried, body, paths, plain, forms)
        if is_fixed:
            context.decisions.loop_forms[inst] = better
            return better, close_computation(tried, body, better)
        program.back_to(before)
        forms, paths = better, hopes


def _wanted_form(plain: Form) -> Form:
    """Of an accumulator, before any maker of its terms is known."""
    partial = plain.sharding
    return Form(partial, "add", without_partials(partial)) if is_wanted_partial(partial) else plain


def _same_in_all_trips(inst: Instruction, body: Computation) -> dict[int, int]:
    """By leaf of the carry: the trips, of small arrays that no trip changes (see `passes.loop_invariants`)."""
    trips = trip_count(inst).count
    if trips < 2 or body.root.opcode != "tuple":
        return {}
    results = enumerate(zip(inst.shape.first_leaves, body.root.operands, strict=False))
    return {
        leaf: trips
        for number, (leaf, result) in results
        # Of larger ones nobody knows before the program is written whether memory bears them in front of the loop.
        if result.shape.is_array and result.shape.byte_size <= SMALL and hands_on(body, number)
    }


def _accumulators(context: Context, inst: Instruction, body: Computation, condition: Computation) -> Paths:
    # One trip reduces once, wherever the sum is made.
    if context.decisions.has_manual_groups or is_manual(context, inst) or trip_count(inst) == (1, True):
        return {}
    readers = condition.parameters[0].users
    if not inst.shape.is_tuple or any(u.opcode != "get-tuple-element" for u in readers):
        return {}
    # The condition reads these in every trip: no sum of them can wait.
    hidden = ((inst.shape.first_leaves[u.tuple_index], len(u.shape.leaves)) for u in readers)
    leaves = frozenset(leaf for first, count in hidden for leaf in range(first, first + count))
    found = accumulators(body.parameters[0], body.root, leaves, context.decisions.readers)
    # A stack that somebody reads is summed row by row: behind the loop it would be as many bytes, and none of them
    # hidden behind what the loop computes.
    return {leaf: path for leaf, path in found.items() if not only_stacks(path) or is_awaited(context, inst, leaf)}


def _improved(tried: Context, body: Computation, paths: Paths, plain: Forms, forms: Forms) -> tuple[Forms, Paths, bool]:
    """Forms that suit what the body did, what may still be deferred, and: was nothing done in vain?

    A carry that is whole may become partial sums, partial sums whole, and no more: so this comes to an end.
    """
    better, hopes, is_fixed = list(forms), dict(paths), True
    results = parts_of(tried.values[body.root])
    for index, path in paths.items():
        found = next(deferred_sums(tried, path), None)
        if forms[index].maker is None:  # whole, or what was wanted
            better[index] = _deferred_form(tried, plain[index], found)
        is_in_vain = better[index] == forms[index] and not is_deferred_as(results[index], forms[index])
        if better[index].deferred is None or is_in_vain:
            better[index] = plain[index]
            del hopes[index]
        # Sums that waited for a carry that is whole after all did so in vain: the body is walked again.
        is_fixed &= better[index] == forms[index] and (found is None or index in hopes)
    return tuple(better), hopes, is_fixed


def _deferred_form(tried: Context, plain: Form, found: tuple[Instruction, Value] | None) -> Form:
    """The form of an accumulator to which such partial sums (of an op) are added: whole where that is better."""
    if found is None or found[1].reduce_kind is None or not may_accumulate(found[1]):
        return plain
    maker, value = found
    total = without_partials(plain.sharding)
    partial_sums, whole = (local_shape(tried, value.shape, s).byte_size for s in (value.sharding, total))
    if partial_sums <= whole:
        return Form(value.sharding, value.reduce_kind, total, maker)
    # Summed in every trip over the devices that share it, they take no more memory than the sum.
    terms = copies_as_partials(total)
    return Form(terms, value.reduce_kind, total, maker) if sums_over_some(tried, value.sharding, terms) else plain
