"""A backward step where a look at each user is not enough: manual users, shard barriers, ops that replicate operands.

Floor: propagation.  Follows XLA's InferShardingFromUsers.
"""

from __future__ import annotations

from hlosharding.ir import custom_call_targets as targets
from hlosharding.propagation import policy
from hlosharding.propagation.handlers import leaves_offered
from hlosharding.propagation.improving import improved_leaves
from hlosharding.propagation.inference import offer_to_operand
from hlosharding.propagation.nodes import Use
from hlosharding.propagation.op_view import Edge, leaf_range
from hlosharding.propagation.state import PropagationState
from hlosharding.sharding import HloSharding


def step_with_special_users(state: PropagationState, p: int) -> bool:
    """Let the value at `p` take from its users; did it?"""
    nodes, own = state.nodes, state.at(p)
    if own is not None and own.is_manual():
        return False
    if nodes.has_manual and (own is None or own.is_tile_maximal()) and _take_manual(state, p):
        return True
    if not nodes.receives_backward(nodes.ids[p], nodes.ops[p]):
        return False
    return _take_from_users(state, p)


def _take_manual(state: PropagationState, p: int) -> bool:
    """A manual user makes an array manual; so does a user that would like it manual."""
    receiver = TupleReceiver(state, p)
    for use in state.nodes.uses[p]:
        sharding = state.at(use[0])
        if sharding is None or use[1].op.target == targets.FULL_TO_SHARD:
            continue
        if use[1].takes_element and not receiver.would_be_manual(*use):
            continue
        if state.nodes.ops[p].shape.is_array and sharding.is_manual():
            found: HloSharding | None = HloSharding.manual(sharding.metadata)
        else:
            found = offer(state, p, use, state.level)
        if found is not None and found.is_manual():
            state.change(p, state.number(found), "users", (use[0],))
            return True
    return False


def _take_from_users(state: PropagationState, p: int) -> bool:
    nodes, before = state.nodes, state.current[p]
    sources: list[int] = []
    receiver: TupleReceiver | None = None
    for use in nodes.uses[p]:
        if use[1].op.opcode in policy.REPLICATES_OPERANDS:
            state.change(p, state.number(HloSharding.replicate()), "users", (use[0],), before)
            return True
        if use[1].takes_element and nodes.ops[p].target != policy.SHARD_BARRIER_TO:
            receiver = receiver or TupleReceiver(state, p)
            sources += [use[0]] if receiver.take(*use) else []
            continue
        if receiver is not None:
            receiver = receiver.settle()
        offered = offer(state, p, use, state.level)
        if offered is None:
            continue
        if nodes.ops[p].target == policy.SHARD_BARRIER_TO:
            offered = HloSharding.replicate()
        if state.improve(p, offered):
            sources.append(use[0])
    if receiver is not None:
        receiver.settle()
    if sources:
        state.change(p, state.current[p], "users", tuple(sources), before)
    return bool(sources)


# ---- what a tuple takes of those who read its elements


class TupleReceiver:
    """The leaves of a tuple's sharding while its users are asked in turn."""

    __slots__ = ("_changed", "_leaves", "_not_manual", "_place", "_state")

    def __init__(self, state: PropagationState, p: int) -> None:
        self._state, self._place, self._changed = state, p, False
        own = state.at(p)
        self._leaves: list[HloSharding] | None = None if own is None else list(own.tuple_elements)
        # Counted once and then kept: if each of n readers of elements looked at all leaves, that would cost n * n.
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


# ---- what the users of a value would like it to have: one of them, or those ahead along a chain of single users
#
# Asks inference; changes nothing.


def offer(state: PropagationState, p: int, use: Use, level: int) -> HloSharding | None:
    """What one user would like the value at `p` to have (XLA's GetShardingFromUser)."""
    state.busy = p
    user, edge = use
    sharding = state.at(user)
    if sharding is None or edge.op.through > level:
        return None
    return offer_to_operand(edge, state.at(p), sharding, list(map(state.at, state.beside(user, edge))), level)


def look_ahead(state: PropagationState, p: int) -> HloSharding | None:
    """What the users ahead would like: back along the chain of single users from the first sharded one.

    XLA: LookaheadUserSharding.  XLA walks the whole chain for each value on it; here it is walked once, and what was
    found of each value stands in `state.ahead` until something changes that it was found from.
    """
    known, uses = state.ahead, state.nodes.uses
    chain: list[int] = []
    value = p
    while value not in known:
        chain.append(value)
        if len(uses[value]) != 1 or state.current[uses[value][0][0]]:
            break
        value = uses[value][0][0]
    for value in reversed(chain):
        known[value] = _of_single_user(state, value)
    return known[p]


def _of_single_user(state: PropagationState, p: int) -> HloSharding | None:
    """What the only user would like, with its own sharding or, where it has none, with the one that is ahead of it."""
    uses = state.nodes.uses[p]
    if len(uses) != 1:
        return None
    user = uses[0][0]
    if state.current[user]:
        return offer(state, p, uses[0], policy.NEVER)
    ahead = state.ahead[user]
    if ahead is None:
        return None
    state.put(user, ahead)  # for the time of asking only
    found = offer(state, p, uses[0], policy.NEVER)
    state.current[user] = 0
    return found
