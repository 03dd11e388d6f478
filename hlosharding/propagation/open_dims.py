"""Annotations with open dims: when they take tiles from operands and users, alone or with the manual conversion behind.

Floor: propagation.  Which tiles fit is `refinement`'s answer.
"""

from __future__ import annotations

from hlosharding.ir import custom_call_targets as targets
from hlosharding.propagation import refinement
from hlosharding.propagation.provenance import Direction
from hlosharding.propagation.state import PropagationState
from hlosharding.propagation.user_offers import offer
from hlosharding.propagation.worklist import DONE, TODO
from hlosharding.sharding import HloSharding


def refine_forward(state: PropagationState, p: int) -> bool:
    """Open dims take tiles from the operand (InferUnspecifiedDimsFromOperand); tried anew until it works."""
    state.forward.state[p] = TODO
    operand = state.nodes.operands[p][0]
    conversion, fits = _conversion(state, p)
    if not state.combine or not fits:
        return False
    if not refine_from(state, p, conversion, state.at(operand), "operands", 0):
        return False
    state.clear(p, conversion)
    state.forward.state[p] = DONE
    return True


def refine_backward(state: PropagationState, p: int) -> bool:
    """Open dims take tiles from the users, or from those of the conversion behind (InferUnspecifiedDimsFromUsers)."""
    nodes = state.nodes
    state.backward.state[p] = TODO
    if p in nodes.conversions:
        # A conversion is refined together with the annotation before it.
        annotation = nodes.operands[p][0]
        state.backward.state[annotation] = state.backward.opened[annotation]
    if p not in nodes.open_dims:
        return False
    conversion, fits = _conversion(state, p)
    if not state.combine or not fits:
        return False
    at = p if conversion is None else conversion
    found = False
    for use in nodes.uses[at]:
        sharding = state.at(use[0])
        if sharding is not None and sharding.is_tiled():
            found |= refine_from(state, p, conversion, offer(state, at, use, state.level), "users", use[0])
    if found:
        state.clear(p, conversion)
        state.backward.state[at] = state.backward.state[p] = DONE
    return found


def _conversion(state: PropagationState, p: int) -> tuple[int | None, bool]:
    """The manual conversion behind an annotation, if that is its only user; False if its open dims differ."""
    nodes = state.nodes
    users = [user for user, _ in nodes.uses[p]]
    if len(users) != 1 or users[0] not in nodes.conversions:
        return None, True
    dims = refinement.open_dims_of(nodes.graph.instructions[nodes.ids[users[0]]].opaque)
    return users[0], dims == nodes.open_dims[p]


def refine_from(
    state: PropagationState,
    p: int,
    conversion: int | None,
    source: HloSharding | None,
    direction: Direction,
    cause: int,
) -> bool:
    """Let the open dims at `p`, and the conversion behind it if there is one, take the tiles of `source`; did they?"""
    own = state.at(p)
    if source is None or own is None or not source.is_tiled():
        return False
    open_dims = state.nodes.open_dims[p]
    if conversion is None:
        refined = refinement.refine(own, source, open_dims)
        if refined is not None:
            _overwrite(state, p, refined, direction, cause)
        return refined is not None
    other = state.at(conversion)
    if other is None:
        return False
    manual_first = state.nodes.ops[conversion].target == targets.SHARD_TO_FULL
    from_users = direction == "users"
    pair = refinement.refine_pair(own, other, source, open_dims, manual_first=manual_first, from_users=from_users)
    if pair is None:
        return False
    for place, sharding in zip((p, conversion), pair, strict=True):
        _overwrite(state, place, sharding, direction, cause)
    return True


def _overwrite(state: PropagationState, p: int, sharding: HloSharding, direction: Direction, cause: int) -> None:
    old = state.current[p]
    state.put(p, sharding)
    state.note(p, direction, (cause,), old)
