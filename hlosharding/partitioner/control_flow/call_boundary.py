"""Computations that others call: partitioned anew for each caller, arrays crossing the boundary in agreed forms.

Floor: partitioner.  A form is a sharding and, for partial sums, the reduction that is deferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from hlosharding.ir import Computation, Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.resharding import local_shape, pack, reduced, reshard, reshard_leaves, unpack, value_of
from hlosharding.partitioner.value import (
    AnyValue,
    DeferredReduction,
    Form,
    Value,
    from_leaves,
    from_parts,
    leaves_of,
    parts_of,
    shape_of_leaves,
)
from hlosharding.sharding import HloSharding, member_numbers, without_partials
from hlosharding.spmd import Emitter, only_first

Forms = tuple[Form, ...]


def forms_of(shardings: Sequence[HloSharding]) -> Forms:
    """Whole values in these shardings."""
    return tuple(Form(s) for s in shardings)


def open_computation(
    context: Context,
    source: Computation,
    parameters: Sequence[Forms],
    may_defer: frozenset[Instruction] = frozenset(),
    trips: Mapping[int, int] = MappingProxyType({}),
) -> Context:
    """A local computation, its parameters in the given forms, with everything in it but a root.

    `trips`: by leaf, in how many trips of a loop a value is the same that may be moved before the loop.
    """
    # Callees are written as they are needed: the module is put in callees-first order when it is closed.
    builder = context.emitter.program.body(source.name)
    inner = context.computation(Emitter(context.emitter.program, builder), may_defer=may_defer)
    for parameter, forms in zip(source.parameters, parameters, strict=True):
        _, entered = enter_parameter(inner, parameter, forms)
        inner.values[parameter] = entered
        for leaf, count in trips.items():
            if isinstance(part := parts_of(entered)[leaf], Value):
                part.trips = count
    for inst in source.instructions:
        if inst.opcode != "parameter":
            inner.values[inst] = inner.lower(inner, inst)
    return inner


def close_computation(inner: Context, source: Computation, results: Forms) -> Computation:
    """Give an opened computation its root: the source's, in the given forms."""
    inner.emitter.lowering(source.root, "result")
    moved = in_forms(inner, source.root, results, "result of a computation")
    root = pack(inner, moved)
    computation = inner.emitter.computation.computation
    if root.opcode == "parameter" and len(computation.instructions) > 1:
        root = inner.emitter.op("copy", root.shape, (root,))
    computation.set_root(root)
    return computation


def partition_computation(
    context: Context, source: Computation, parameters: Sequence[Forms], results: Forms
) -> Computation:
    """A local computation: parameters and result leaves in the given forms."""
    return close_computation(open_computation(context, source, parameters), source, results)


def in_forms(context: Context, inst: Instruction, forms: Forms, reason: str) -> AnyValue:
    """What an instruction became, as it crosses the boundary."""
    if all(f.deferred is None for f in forms):
        return reshard_leaves(context, value_of(context, inst), [f.sharding for f in forms], reason)
    parts = parts_of(context.values[inst])
    return from_leaves(inst.shape, [_in_form(context, inst, p, f, reason) for p, f in zip(parts, forms, strict=True)])


def _in_form(context: Context, inst: Instruction, part: Value | DeferredReduction, form: Form, reason: str) -> Value:
    """Where a reduction stays deferred for what is whole already, one member of each group has it for all."""
    if isinstance(part, DeferredReduction) and is_deferred_as(part, form):
        return part.partial
    value = reduced(context, part, inst)
    assert isinstance(value, Value)
    if form.deferred is None:
        return reshard(context, value, form.sharding, reason)
    whole = reshard(context, value, without_partials(form.sharding), reason)
    members = member_numbers(form.sharding, context.num_partitions)
    return Value(
        only_first(context.emitter, whole.local, members, form.deferred), value.shape, form.sharding, form.deferred
    )


def is_deferred_as(part: Value | DeferredReduction, form: Form) -> bool:
    """Is the value made of just those partial sums, and has nobody needed their sum?"""
    if not isinstance(part, DeferredReduction) or part.reduced is not None:
        return False
    return part.partial.sharding is form.sharding and part.partial.reduce_kind == form.deferred


def unpacked(context: Context, local: Instruction, shape: Shape, forms: Forms) -> AnyValue | DeferredReduction:
    """The values of a local tuple (or array) whose leaves have these forms."""
    values = leaves_of(unpack(context, local, shape, [f.sharding for f in forms]))
    return from_parts(shape, [_from_form(v, f) for v, f in zip(values, forms, strict=True)])


def _from_form(value: Value, form: Form) -> Value | DeferredReduction:
    if form.deferred is None:
        return value
    value.reduce_kind = form.deferred
    return DeferredReduction(value, form.wanted, form.maker)


def enter_parameter(
    context: Context, parameter: Instruction, forms: Forms
) -> tuple[Instruction, AnyValue | DeferredReduction]:
    """A local parameter, and its arrays."""
    tiles = (local_shape(context, s, f.sharding) for s, f in zip(parameter.shape.leaves, forms, strict=False))
    shape = shape_of_leaves(parameter.shape, tiles)
    context.emitter.lowering(parameter, "parameter")
    local = context.emitter.computation.parameter(
        parameter.parameter_number, shape, name=parameter.name, like=parameter
    )
    return local, unpacked(context, local, parameter.shape, forms)
