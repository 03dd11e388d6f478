"""What the users of a value would like it to have: one of them, or those ahead along a chain of single users.

Floor: propagation.  Asks inference; changes nothing.
"""

from __future__ import annotations

from hlosharding.propagation import policy
from hlosharding.propagation.inference import offer_to_operand
from hlosharding.propagation.nodes import Use
from hlosharding.propagation.state import PropagationState
from hlosharding.sharding import HloSharding


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
