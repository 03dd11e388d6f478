"""Shard groups: values that are to be sharded alike hear one another before each sweep.

Floor: propagation.  Which values form a group is said by annotations; that the members of a `shard_as` group end up
with one sharding is seen to at the end of the pass.
"""

from __future__ import annotations

from hlosharding.propagation import policy
from hlosharding.propagation.open_dims import refine_from
from hlosharding.propagation.state import PropagationState


def group_sweep(state: PropagationState, start: int, end: int) -> tuple[bool, bool]:
    """Every member of a shard group takes from the others, in post order: (improved, refined)."""
    improved = refined = False
    for p in sorted(state.nodes.group_of):
        if not start <= p < end or p in state.done_group:
            continue
        if state.nodes.ids[p] in state.nodes.provided:
            refined |= _refine_open_dims(state, p)
        else:
            state.done_group.add(p)
            improved |= _take_from_group(state, p)
    return improved, refined


def _take_from_group(state: PropagationState, p: int) -> bool:
    """XLA's InferShardingFromShardGroup."""
    state.busy = p
    own, op = state.at(p), state.nodes.ops[p]
    if op.through > state.level or (own is not None and own.is_manual()) or op.target == policy.SHARD_BARRIER_TO:
        return False
    members = [(m, s) for m in state.nodes.members(p) if (s := state.at(m)) is not None]
    if own is None or own.is_tile_maximal():
        for m, sharding in members:
            if sharding.is_manual():
                state.change(p, state.current[m], "group", (m,))
                return True
    before, sources = state.current[p], ()
    for m, sharding in members:
        if state.nodes.ops[m].target != policy.SHARD_BARRIER_FROM and state.improve(p, sharding):
            sources = (*sources, m)
    if sources:
        state.change(p, state.current[p], "group", sources, before)
    return bool(sources)


def _refine_open_dims(state: PropagationState, p: int) -> bool:
    """XLA's InferUnspecifiedDimsFromShardGroup."""
    nodes = state.nodes
    if not state.combine or p not in nodes.open_dims:
        return False
    found = False
    for m in nodes.members(p):
        if nodes.ops[m].target != policy.SHARD_BARRIER_FROM:
            found |= refine_from(state, p, None, state.at(m), "group", m)
    if found:
        state.clear(p)
        state.done_group.add(p)
    return found
