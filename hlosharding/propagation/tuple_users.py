"""What a tuple takes from those who read its elements: leaf by leaf, and the whole is put together once.

Floor: propagation.  The same as for any other user (`offer_to_operand`, then `improve`), but that of each reader only
the leaves of its element are looked at: a loop may carry thousands of arrays, each read by an op of its own.
"""

from __future__ import annotations

from hlosharding.propagation.handlers import leaves_offered
from hlosharding.propagation.improving import improved_leaves
from hlosharding.propagation.op_view import Edge, leaf_range
from hlosharding.propagation.state import PropagationState
from hlosharding.sharding import HloSharding


class TupleReceiver:
    """The leaves of a tuple's sharding while its users are asked in turn."""

    __slots__ = ("_changed", "_leaves", "_not_manual", "_place", "_state")

    def __init__(self, state: PropagationState, p: int) -> None:
        self._state, self._place, self._changed = state, p, False
        own = state.at(p)
        self._leaves: list[HloSharding] | None = None if own is None else list(own.tuple_elements)
        self._not_manual = sum(not leaf.is_manual() for leaf in self._leaves or ())

    def take(self, user: int, edge: Edge) -> bool:
        """Take from one reader of an element; did it improve the tuple's sharding?"""
        self._state.busy = self._place
        sharding = self._state.at(user)
        if sharding is None or edge.op.through > self._state.level or not sharding.is_spatially_partitioned():
            return False
        offered = leaves_offered(edge, self._leaves, sharding)
        if offered is None:
            return False
        start, leaves = offered
        if self._leaves is None:
            self._put(0, leaves)
            return True
        old = self._leaves[start : start + len(leaves)]
        if old == leaves:
            return False
        rest_is_manual = self._not_manual == sum(not leaf.is_manual() for leaf in old)
        found = improved_leaves(old, leaves, rest_is_manual, combine=self._state.combine)
        if found is not None:
            self._put(start, found)
        return found is not None

    def _put(self, start: int, leaves: list[HloSharding]) -> None:
        self._leaves = self._leaves or []
        old = self._leaves[start : start + len(leaves)]
        self._leaves[start : start + len(leaves)] = leaves
        self._not_manual += sum(not leaf.is_manual() for leaf in leaves) - sum(not leaf.is_manual() for leaf in old)
        self._changed = True

    def would_be_manual(self, user: int, edge: Edge) -> bool:
        """Would the whole tuple be manual if this reader's element were as the reader has it?"""
        sharding = self._state.at(user)
        if sharding is None or edge.op.through > self._state.level or not sharding.is_manual():
            return False
        if self._leaves is None:
            return True
        start, end = leaf_range(edge.shape, edge.op.instruction.tuple_index)
        return self._not_manual == sum(not leaf.is_manual() for leaf in self._leaves[start:end])

    def settle(self) -> None:
        """Give the tuple what was found; nobody is told."""
        if self._changed and self._leaves is not None:
            self._state.put(self._place, HloSharding.tuple(self._leaves))
