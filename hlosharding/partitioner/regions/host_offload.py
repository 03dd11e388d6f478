"""Moves between a device's memory and its host's: each device moves its own tile, and what lies on a host stays there.

Floor: partitioner.  Devices exchange data before a value goes to their hosts, or after it is back.  Ops for the
host's processor stay marked.  What asks for more (another kind of memory, another processor) is said to be left undone.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlosharding.ir import Instruction, Module, memory_of, named_memory, processor_of
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.resharding import array_of, to_wanted
from hlosharding.partitioner.value import AnyValue, Value


def is_move(inst: Instruction) -> bool:
    """Does it move an array to the host's memory, or back?"""
    return inst.opcode == "custom-call" and memory_of(inst) is not None and inst.shape.is_array


def move(context: Context, inst: Instruction) -> AnyValue:
    """The same move of a tile, in the wanted sharding before it leaves the device, or after it is back."""
    value, wanted = array_of(context, inst.operands[0]), context.wanted_leaves(inst)[0]
    value = to_wanted(context, value, wanted if memory_of(inst) == "host" else None, "to the host's memory")
    context.emitter.lowering(inst, "back from the host's memory")
    made = Value(context.emitter.local(inst, value.local.shape, (value.local,)), inst.shape, value.sharding)
    return to_wanted(context, made, wanted, "back from the host's memory")


def left_undone(module: Module) -> list[str]:
    """A warning for each source line whose ops shall run, or lie, where the per-device program does not put them."""
    found: dict[tuple[str, str], list[Instruction]] = {}
    for inst in module.instructions:
        # Asked of every instruction: nothing is decoded where there is nothing.
        if inst.opcode == "custom-call" or inst.proto.HasField("frontend_attributes"):
            for wish in _unmet(inst):
                found.setdefault((inst.location or f"%{inst.name}", wish), []).append(inst)
    return [_warning(place, wish, insts) for (place, wish), insts in found.items()]


def _unmet(inst: Instruction) -> Iterator[str]:
    processor = processor_of(inst)
    if processor not in (None, "host"):
        yield f"is to run on processor {processor!r} (_xla_compute_type); it runs on the device"
    kind = named_memory(inst)
    if kind is not None and memory_of(inst) is None:
        yield f"is to lie in memory {kind!r}; it stays where it is"


def _warning(place: str, wish: str, insts: list[Instruction]) -> str:
    first = insts[0]
    name = f"{first.opcode} {first.custom_call_target}".strip() + f" %{first.name}"
    others = f" and {len(insts) - 1} more of that line" if len(insts) > 1 else ""
    return f"{name} at {place} {wish}{others}"
