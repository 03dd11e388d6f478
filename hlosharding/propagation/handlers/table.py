"""The two tables of handlers, and which further operands a backward handler wants to see.

Floor: propagation.  An opcode without an entry passes shardings on as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from hlosharding.propagation.improving import Receiver
from hlosharding.propagation.op_view import Edge, OpView
from hlosharding.registry import Registry
from hlosharding.sharding import HloSharding

Shardings = list[HloSharding | None]
Forward = Callable[[OpView, Receiver, Shardings, int], None]
"""(op, receiver, operand shardings, level): offers the receiver what it could take."""
Backward = Callable[[Edge, HloSharding | None, HloSharding, Shardings, int], HloSharding | None]
"""(edge, own sharding, user's sharding, shardings of other operands, level): what the user would like."""

FORWARD: Registry[str, Forward] = Registry("forward handlers")
BACKWARD: Registry[str, Backward] = Registry("backward handlers")
_OTHERS: Registry[str, Callable[[OpView, tuple[int, ...]], tuple[int, ...]]] = Registry("other operands")

wants_others = _OTHERS.register


def other_operands(op: OpView, positions: tuple[int, ...]) -> tuple[int, ...]:
    """Operand positions whose shardings `op`'s backward handler reads besides the value at `positions`."""
    find = _OTHERS.get(op.opcode)
    return find(op, positions) if find else ()
