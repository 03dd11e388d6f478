"""Ops as numbers: equal numbers where two ops differ at most in their operands, names and source lines.

Floor: partitioner.  Looks at instructions and shardings alone.
"""

from __future__ import annotations

from typing import Any

from hlosharding.ir import REDUCER_KINDS, Computation, Module, attributes_of, reducer_kind, stated_of


def op_keys(module: Module, annotated: frozenset[str]) -> list[int]:
    """A number for each instruction of the entry: opcode, shape, attributes, callees, sharding, annotated or not."""
    numbers: dict[Any, int] = {}
    callees: dict[Computation, Any] = {}
    number, sharding = numbers.setdefault, module.shardings.get
    found: list[int] = []
    for inst in module.entry.instructions:
        key = (inst.opcode, inst.shape, sharding(inst.id), attributes_of(inst), inst.channel_id)
        if inst.called:
            key = (*key, *[_callee(c, callees) for c in inst.called])
        if inst.proto.HasField("frontend_attributes"):
            key = (*key, stated_of(inst))
        if inst.name in annotated:
            key = (*key, "annotated")
        found.append(number(key, len(numbers)))
    return found


def _callee(computation: Computation, known: dict[Computation, Any]) -> Any:
    """What a reducer does; any other computation is like itself alone."""
    found = known.get(computation)
    if found is None:
        kind, types = reducer_kind(computation), [i.shape for i in computation.instructions]
        is_plain = kind in REDUCER_KINDS and len(types) == 3
        found = known[computation] = (kind, *types) if is_plain else computation
    return found
