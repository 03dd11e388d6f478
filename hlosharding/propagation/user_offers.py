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

    XLA: LookaheadUserSharding.  Shardings between are set for the time of asking only.
    """
    uses, chain = state.nodes.uses, [p]
    while True:
        if len(uses[chain[-1]]) != 1:
            return None
        chain.append(uses[chain[-1]][0][0])
        if state.current[chain[-1]]:
            break
    found = None
    for value in reversed(chain[:-1]):
        found = offer(state, value, uses[value][0], policy.NEVER)
        if found is None or value == p:
            break
        state.put(value, found)
    for middle in chain[1:-1]:
        state.current[middle] = 0
    return found
