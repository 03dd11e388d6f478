"""Which ops are alike: what is found out about one of them holds for all, in every layer.

Floor: partitioner.  Looks at instructions alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hlosharding.ir import GENERATORS, Instruction
from hlosharding.partitioner.local_ops import local_rule
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding

MADE_AT_NO_COST = GENERATORS | {"broadcast"}
"""What each device makes, or has most of, without communication."""
Situation = tuple[int, ...]
"""The number of an op's kind, and of the shardings of its result and operands (`uid`; -1: none)."""


@dataclass(slots=True)
class OpKinds:
    """Ops by all that their costs depend on, but for how their values lie."""

    _numbers: dict[Any, int] = field(default_factory=dict[Any, int])
    _of: dict[Instruction, int] = field(default_factory=dict[Instruction, int])

    def situation(self, op: Instruction, shardings: Mapping[int, HloSharding]) -> Situation:
        """An op under a table of shardings: it costs what others in the same situation cost."""
        kind = self._of.get(op)
        if kind is None:
            kind = self._of[op] = self._numbers.setdefault(_all_that_counts(op), len(self._numbers))
        found = [kind]
        for value in (op, *map(original_of, op.operands)):
            lies = shardings.get(value.id)
            found.append(-1 if lies is None else lies.uid)
        return tuple(found)


def _all_that_counts(op: Instruction) -> Any:
    """Of what an op costs between given shardings; itself where it is like no other."""
    signature = signature_of(op)
    if not isinstance(signature, Signature):
        return op
    windows, shapes = local_rule(op.opcode).windows, [op.shape, *[o.shape for o in op.operands]]
    seen = None if windows is None else windows(op, signature)
    originals = [(n, original_of(operand)) for n, operand in enumerate(op.operands)]
    anywhere = [(n, broadcast_dims_of(o)) for n, o in originals if o.opcode in MADE_AT_NO_COST]
    return op.opcode, signature, seen, tuple(shapes), tuple(anywhere), len(op.users) == 1


def broadcast_dims_of(value: Instruction) -> tuple[int, ...]:
    """Of a broadcast the dims along which it is constant: one slice of it moves."""
    if value.opcode != "broadcast":
        return ()
    return tuple(d for d in range(value.shape.rank) if d not in value.dimensions)


def original_of(value: Instruction) -> Instruction:
    """What it is a copy of: that is what moves."""
    while value.opcode == "copy":
        value = value.operands[0]
    return value
