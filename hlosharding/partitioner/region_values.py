"""What operands became, as the region that asks sees them: all devices, or each group of a manual region.

Floor: partitioner.  Deferred reductions are made when somebody asks for the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlosharding.errors import PartitionError
from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.resharding import seen_from, to_wanted
from hlosharding.partitioner.value import AnyValue, DeferredReduction, TupleValue, Value, parts_of
from hlosharding.sharding import HloSharding


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
    values, groups = context.values, context.manual_groups
    return [
        v if type(v := values[o]) is Value and v.manual_groups is groups else array_of(context, o) for o in operands
    ]


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
