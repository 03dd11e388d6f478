"""Frontend attributes with which tracing marks calls for the partitioner.

Floor: ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hlosharding.ir.graph import Instruction

PARTITIONING_MARK: Final = "hlosharding.custom_partitioning"
"""A call of a function under `custom_partitioning`: the place of what the user gave in `Module.partitionings`."""
RULE_MARK: Final = "xla.sdy.sharding_rule"
"""Shardy's rule of a call, as Shardy itself exports it."""


def is_custom_partitioning(inst: Instruction) -> bool:
    """Is it the call of a function under `custom_partitioning`?"""
    return inst.proto.HasField("frontend_attributes") and PARTITIONING_MARK in inst.frontend_attributes


def custom_partitioning_of(inst: Instruction) -> Any:
    """What the user gave with the called function; None where the module came without it (from a file)."""
    place, given = int(inst.frontend_attributes[PARTITIONING_MARK]), inst.module.partitionings
    return given[place] if place < len(given) else None
