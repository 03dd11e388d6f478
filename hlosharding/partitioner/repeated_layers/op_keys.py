"""Ops as numbers: equal numbers where two ops differ at most in their operands, names and source lines.

Floor: partitioner.  Looks at instructions and shardings alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlosharding.ir import ELEMENTWISE, REDUCER_KINDS, Computation, Instruction, Module, reducer_kind
from hlosharding.spmd import attributes_of


def op_keys(module: Module, annotated: frozenset[str]) -> list[int]:
    """A number for each instruction of the entry: opcode, shape, attributes, callees, sharding, annotated or not."""
    numbers: dict[Any, int] = {}
    callees: dict[Computation, Any] = {}
    number, read, sharding = numbers.setdefault, _READ.get, module.shardings.get
    found: list[int] = []
    for inst in module.entry.instructions:
        opcode = inst.opcode
        key = (opcode, inst.shape, sharding(inst.id), None if opcode in _BARE else read(opcode, attributes_of)(inst))
        if inst.called:
            key = (*key, *[_callee(c, callees) for c in inst.called])
        if inst.proto.HasField("frontend_attributes"):
            key = (*key, attributes_of(inst))
        if inst.name in annotated:
            key = (*key, "annotated")
        found.append(number(key, len(numbers)))
    return found


_BARE = (ELEMENTWISE - {"compare", "reduce-precision", "stochastic-convert"}) | {"parameter", "reshape", "tuple"}
"""Of such ops nothing but the shape counts: of what a parameter's number is the layers differ."""
_READ: dict[str, Callable[[Instruction], Any]] = {
    "compare": lambda inst: inst.comparison_direction,
    "constant": lambda inst: inst.proto.literal.SerializeToString(),
    "dot": lambda inst: inst.dot_dims,
    "get-tuple-element": lambda inst: inst.tuple_index,
    "pad": lambda inst: inst.padding,
    "slice": lambda inst: inst.slice_dims,
} | dict.fromkeys(("broadcast", "concatenate", "iota", "reduce", "transpose"), lambda inst: inst.dimensions)
"""What counts of the attributes of frequent ops; of others all of them."""


def _callee(computation: Computation, known: dict[Computation, Any]) -> Any:
    """What a reducer does; any other computation is like itself alone."""
    found = known.get(computation)
    if found is None:
        kind, types = reducer_kind(computation), [i.shape for i in computation.instructions]
        is_plain = kind in REDUCER_KINDS and len(types) == 3
        found = known[computation] = (kind, *types) if is_plain else computation
    return found
