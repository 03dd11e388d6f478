"""Ops that are lowered by their factors but for one thing: convert, and the all-reduce of a global program.

Floor: partitioner.
"""

from __future__ import annotations

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors import lower_by_factors, lower_by_signature
from hlosharding.partitioner.movement.tuples import copy
from hlosharding.partitioner.region_values import array_of
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value
from hlosharding.partitioner.whole_operands import compute_whole
from hlosharding.rules import Signature, signature_of
from hlosharding.spmd import Devices, device_groups


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
