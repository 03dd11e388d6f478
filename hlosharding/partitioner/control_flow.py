"""While, conditional, call and the ops that only order others: values cross borders leaf by leaf, in agreed shardings.

Floor: partitioner.  A loop's carry has one sharding in init, body parameter, body result and condition parameter;
predicates are whole on every device.  A callee is partitioned anew for each caller, since callers may differ.
"""

from __future__ import annotations

from hlosharding.ir import Computation, Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.manual import MANUAL, is_manual
from hlosharding.partitioner.projection import REPLICATED
from hlosharding.partitioner.value import AnyValue, Value, from_leaves, leaves_of
from hlosharding.sharding import HloSharding

Shardings = tuple[HloSharding, ...]


def while_loop(context: Context, inst: Instruction) -> AnyValue:
    """Body and condition over local shapes; collectives inside repeat each trip."""
    init = context.value(inst.operands[0])
    carried = _agreed(context, inst, init)
    init = context.reshard_leaves(init, list(carried), "loop carry")
    body, condition = _loop_computations(inst)
    local_body = partition_computation(context, body, (carried,), carried)
    predicate = MANUAL if is_manual(context, condition.root) else REPLICATED
    local_condition = partition_computation(context, condition, (carried,), (predicate,))
    packed = context.pack(init)
    called = [local_condition if c is condition else local_body for c in inst.called]
    local = context.emitter.computation.add("while", packed.shape, (packed,), like=inst, called=called)
    return context.unpack(local, inst.shape, list(carried))


def _loop_computations(inst: Instruction) -> tuple[Computation, Computation]:
    """(body, condition); only the condition's root is a scalar predicate, unless the carry itself is one."""
    first, second = inst.called
    carried = str(inst.shape)
    if str(first.root.shape) == carried and str(second.root.shape) == "pred[]" and carried != "pred[]":
        return first, second
    if str(second.root.shape) == carried and str(first.root.shape) == "pred[]" and carried != "pred[]":
        return second, first
    return first, second


def _agreed(context: Context, inst: Instruction, init: AnyValue) -> Shardings:
    wanted = context.wanted_leaves(inst)
    return tuple(w if w is not None else REPLICATED for w, _ in zip(wanted, leaves_of(init), strict=True))


def conditional(context: Context, inst: Instruction) -> AnyValue:
    """Each branch over local shapes; the predicate is whole, so that all devices take the same branch."""
    chooser = context.array(inst.operands[0])
    if chooser.sharding is not MANUAL:
        chooser = context.whole(chooser, "branch index")
    wanted = context.wanted_leaves(inst)
    results = tuple(w if w is not None else REPLICATED for w in wanted)
    operands, called = [chooser.local], []
    for branch, operand in zip(inst.called, inst.operands[1:], strict=True):
        value = context.value(operand)
        taken = _parameter_shardings(context, branch.parameters[0], value)
        value = context.reshard_leaves(value, list(taken), "branch operand")
        called.append(partition_computation(context, branch, (taken,), results))
        operands.append(context.pack(value))
    shape = called[0].root.shape
    local = context.emitter.computation.add("conditional", shape, operands, like=inst, called=called)
    return context.unpack(local, inst.shape, list(results))


def _parameter_shardings(context: Context, parameter: Instruction, value: AnyValue) -> Shardings:
    """A parameter's own sharding where propagation gave one, else what the caller's operand has."""
    wanted = context.wanted_leaves(parameter)
    return tuple(w if w is not None else v.whole_sharding for w, v in zip(wanted, leaves_of(value), strict=True))


def call(context: Context, inst: Instruction) -> AnyValue:
    """The callee over local shapes."""
    callee = inst.called[0]
    values = [context.value(o) for o in inst.operands]
    taken = [_parameter_shardings(context, p, v) for p, v in zip(callee.parameters, values, strict=True)]
    moved = [context.reshard_leaves(v, list(t), "argument of a call") for v, t in zip(values, taken, strict=True)]
    wanted = context.wanted_leaves(inst)
    results = tuple(w if w is not None else REPLICATED for w in wanted)
    body = partition_computation(context, callee, tuple(taken), results)
    local = context.emitter.computation.add(
        "call", body.root.shape, [context.pack(m) for m in moved], like=inst, called=[body]
    )
    return context.unpack(local, inst.shape, list(results))


def barrier(context: Context, inst: Instruction) -> AnyValue:
    """An optimization barrier around local values."""
    value = context.value(inst.operands[0])
    shardings = [v.whole_sharding for v in leaves_of(value)]
    value = context.reshard_leaves(value, shardings, "operand of a barrier")
    packed = context.pack(value)
    local = context.emitter.local(inst, packed.shape, (packed,))
    made = context.unpack(local, inst.shape, shardings)
    settled = [context.settle(v, w) for v, w in zip(leaves_of(made), context.wanted_leaves(inst), strict=True)]
    return from_leaves(inst.shape, settled)


def token(context: Context, inst: Instruction) -> AnyValue:
    """Ordering ops work on whatever their operands became."""
    operands = [context.pack(context.value(o)) for o in inst.operands]
    if inst.opcode == "add-dependency":
        value = context.array(inst.operands[0])
        return Value(context.emitter.local(inst, operands[0].shape, operands), inst.shape, value.sharding)
    return Value(context.emitter.local(inst, inst.shape, operands), inst.shape, REPLICATED)


def per_device(context: Context, inst: Instruction) -> AnyValue:
    """partition-id and replica-id: XLA allows them only where code is per device already."""
    from hlosharding.errors import PartitionError

    raise PartitionError(
        f"{inst.opcode} has no meaning in a program that is still to be partitioned",
        where=f"%{inst.name} {inst.location}".strip(),
        remedy="use it inside a manual (shard_map) region",
    )


def partition_computation(
    context: Context, source: Computation, parameters: tuple[Shardings, ...], results: Shardings
) -> Computation:
    """A local computation: parameters and result leaves in the given shardings."""
    from hlosharding.partitioner.strategies import lower  # strategies know control flow, so not at import

    # Callees are written as they are needed: the module is put in callees-first order when it is closed.
    builder = context.emitter.program.builder.computation(source.name)
    inner = Context(Emitter(context.emitter.program, builder), context.shardings, context.decisions)
    for parameter, shardings in zip(source.parameters, parameters, strict=True):
        _, inner.values[parameter] = enter_parameter(inner, parameter, shardings)
    for inst in source.instructions:
        if inst.opcode != "parameter":
            inner.values[inst] = lower(inner, inst)
    inner.emitter.lowering(source.root, "result")
    root = inner.pack(inner.reshard_leaves(inner.value(source.root), list(results), "result of a computation"))
    return _with_root(inner, builder.computation, root)


def _with_root(context: Context, computation: Computation, root: Instruction) -> Computation:
    if root.opcode == "parameter" and len(computation.instructions) > 1:
        root = context.emitter.op("copy", root.shape, (root,))
    computation.set_root(root)
    return computation


def local_shape(context: Context, shape: Shape, shardings: list[HloSharding]) -> Shape:
    """The shape of a value's tiles, tuples included; consumes the list."""
    if shape.is_tuple:
        return Shape.tuple(tuple(local_shape(context, s, shardings) for s in shape.tuple_shapes))
    return context.local_shape(shape, shardings.pop(0))


def enter_parameter(context: Context, parameter: Instruction, shardings: Shardings) -> tuple[Instruction, AnyValue]:
    """A local parameter, and its arrays."""
    shape = local_shape(context, parameter.shape, list(shardings))
    context.emitter.lowering(parameter, "parameter")
    local = context.emitter.computation.parameter(
        parameter.parameter_number, shape, name=parameter.name, like=parameter
    )
    return local, context.unpack(local, parameter.shape, list(shardings))
