"""Which memory a custom call moves a value to, and which processor runs an op: JAX's marks and what XLA makes of them.

Floor: ir.  The names are those of XLA's ConvertMemoryPlacementToInternalAnnotations.
"""

from __future__ import annotations

from hlosharding.ir.custom_call_targets import MOVE_TARGETS, PLACEMENT_MARK, Memory
from hlosharding.ir.graph import Instruction

_KINDS: dict[str, Memory] = {"pinned_host": "host", "unpinned_host": "host", "device": "device"}
_MEMORIES: dict[str, Memory] = {target: memory for memory, target in MOVE_TARGETS.items()}


def named_memory(inst: Instruction) -> str | None:
    """The kind of memory that a placement mark names; None for a mark that names none, and for other instructions."""
    if inst.opcode != "custom-call" or inst.custom_call_target != PLACEMENT_MARK:
        return None
    return inst.frontend_attributes.get("_xla_buffer_placement")


def memory_of(inst: Instruction) -> Memory | None:
    """`host` or `device` for a call that moves its operand there, else None."""
    if inst.opcode != "custom-call":
        return None
    return _MEMORIES.get(inst.custom_call_target) or _KINDS.get(named_memory(inst) or "")


def processor_of(inst: Instruction) -> str | None:
    """The processor that an op is to run on (`host` under JAX's `compute_on`); None for the device's own."""
    if not inst.proto.frontend_attributes.map:  # asked of every instruction: most have none
        return None
    return inst.frontend_attributes.get("_xla_compute_type")
