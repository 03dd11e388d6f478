"""Manual regions (`jax.shard_map` inside the program): code that is per device already is taken over as it stands.

Floor: partitioner.  The border calls only change how a value is looked at; inside, shapes are local and collectives are
the user's own.
"""

from __future__ import annotations

from hlosharding.errors import PartitionError
from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.projection import REPLICATED, leaf
from hlosharding.partitioner.value import AnyValue, Value
from hlosharding.sharding import HloSharding

MANUAL = HloSharding.manual()
ENTER, LEAVE = "SPMDFullToShardShape", "SPMDShardToFullShape"


def is_manual(context: Context, inst: Instruction) -> bool:
    """Is every result of the instruction per device?"""
    wanted = context.wanted(inst)
    return wanted is not None and wanted.is_manual()


def is_border(inst: Instruction) -> bool:
    """Does the instruction enter or leave a manual region?"""
    return inst.opcode == "custom-call" and inst.custom_call_target in (ENTER, LEAVE)


def cross_border(context: Context, inst: Instruction) -> AnyValue:
    """The same local array, seen from the other side."""
    value = context.array(inst.operands[0])
    if inst.custom_call_target == LEAVE:
        return Value(value.local, inst.shape, leaf(context.wanted(inst)))
    given = context.wanted(inst.operands[0])
    value = context.settle(value, leaf(given) if given is not None else REPLICATED, "enter a manual region")
    if value.local.shape.dims != inst.shape.dims:
        raise PartitionError(
            f"a manual region takes {inst.shape}, the tiles of {value.sharding} are {value.local.shape}",
            where=f"%{inst.name} {inst.location}".strip(),
        )
    return Value(value.local, inst.shape, MANUAL)


def take_over(context: Context, inst: Instruction) -> AnyValue:
    """An op of a manual region: the op itself."""
    operands = [context.pack(context.value(o)) for o in inst.operands]
    local = context.emitter.local(inst, inst.shape, operands)
    return context.unpack(local, inst.shape, [MANUAL] * len(inst.shape.leaves))
