"""Steps that few instructions need: manual users, shard groups, open dims, barriers, and the look ahead of a dot.

Floor: propagation.  Functions of the fix point's state; each follows the XLA function that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlosharding.ir import custom_call_targets as targets
from hlosharding.propagation import partial, policy
from hlosharding.propagation.improving import improve
from hlosharding.propagation.inference import offer_to_operand
from hlosharding.propagation.nodes import Use
from hlosharding.propagation.worklist import DONE, TODO
from hlosharding.sharding import HloSharding

if TYPE_CHECKING:
    from hlosharding.propagation.fixpoint import FixPoint
    from hlosharding.propagation.provenance import Direction


def offer(state: FixPoint, p: int, use: Use, level: int) -> HloSharding | None:
    """What one user would like the value at `p` to have (XLA's GetShardingFromUser)."""
    state.busy = p
    user, edge = use
    sharding = state.at(user)
    if sharding is None or edge.op.through > level:
        return None
    return offer_to_operand(edge, state.at(p), sharding, list(map(state.at, state.beside(user, edge))), level)


def look_ahead(state: FixPoint, p: int) -> HloSharding | None:
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


def slow_backward(state: FixPoint, p: int) -> bool:
    """Backward with what is rare: manual users, barriers, rng-bit-generator (XLA's InferShardingFromUsers)."""
    nodes, own = state.nodes, state.at(p)
    if own is not None and own.is_manual():
        return False
    if nodes.has_manual and (own is None or own.is_tile_maximal()) and _take_manual(state, p):
        return True
    if not nodes.receives_backward(nodes.ids[p], nodes.ops[p]):
        return False
    before, sources = state.current[p], ()
    for use in nodes.uses[p]:
        if use[1].op.opcode == "rng-bit-generator":
            state.change(p, state.number(HloSharding.replicate()), "users", (use[0],), before)
            return True
        offered = offer(state, p, use, state.level)
        if offered is None:
            continue
        if nodes.ops[p].target == policy.SHARD_BARRIER_TO:
            offered = HloSharding.replicate()
        if _improve(state, p, offered):
            sources = (*sources, use[0])
    if sources:
        state.change(p, state.current[p], "users", sources, before)
    return bool(sources)


def _improve(state: FixPoint, p: int, offered: HloSharding) -> bool:
    found = improve(state.at(p), offered, state.nodes.ops[p].shape, combine=state.combine)
    if found is not None:
        state.put(p, found)
    return found is not None


def _take_manual(state: FixPoint, p: int) -> bool:
    """A manual user makes an array manual; so does a user that would like it manual."""
    for use in state.nodes.uses[p]:
        sharding = state.at(use[0])
        if sharding is None or use[1].op.target == targets.FULL_TO_SHARD:
            continue
        if state.nodes.ops[p].shape.is_array and sharding.is_manual():
            found: HloSharding | None = HloSharding.manual(sharding.metadata)
        else:
            found = offer(state, p, use, state.level)
        if found is not None and found.is_manual():
            state.change(p, state.number(found), "users", (use[0],))
            return True
    return False


# ---- shard groups


def group_sweep(state: FixPoint, start: int, end: int) -> tuple[bool, bool]:
    """Every member of a shard group takes from the others, in post order: (improved, refined)."""
    improved = refined = False
    for p in sorted(state.nodes.group_of):
        if not start <= p < end or p in state.done_group:
            continue
        if state.nodes.ids[p] in state.nodes.provided:
            refined |= _refine_from_group(state, p)
        else:
            state.done_group.add(p)
            improved |= _take_from_group(state, p)
    return improved, refined


def _take_from_group(state: FixPoint, p: int) -> bool:
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
        if state.nodes.ops[m].target != policy.SHARD_BARRIER_FROM and _improve(state, p, sharding):
            sources = (*sources, m)
    if sources:
        state.change(p, state.current[p], "group", sources, before)
    return bool(sources)


def _refine_from_group(state: FixPoint, p: int) -> bool:
    """XLA's InferUnspecifiedDimsFromShardGroup."""
    nodes = state.nodes
    if not state.combine or p not in nodes.open_dims:
        return False
    found = False
    for m in nodes.members(p):
        if nodes.ops[m].target != policy.SHARD_BARRIER_FROM:
            found |= _refine(state, p, None, state.at(m), "group", m)
    if found:
        state.clear(p)
        state.done_group.add(p)
    return found


# ---- annotations with open dims


def refine_forward(state: FixPoint, p: int) -> bool:
    """Open dims take tiles from the operand (InferUnspecifiedDimsFromOperand); tried anew until it works."""
    state.forward.state[p] = TODO
    operand = state.nodes.operands[p][0]
    conversion, fits = _conversion(state, p)
    if not state.combine or not fits:
        return False
    if not _refine(state, p, conversion, state.at(operand), "operands", 0):
        return False
    state.clear(p, conversion)
    state.forward.state[p] = DONE
    return True


def refine_backward(state: FixPoint, p: int) -> bool:
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
            found |= _refine(state, p, conversion, offer(state, at, use, state.level), "users", use[0])
    if found:
        state.clear(p, conversion)
        state.backward.state[at] = state.backward.state[p] = DONE
    return found


def _conversion(state: FixPoint, p: int) -> tuple[int | None, bool]:
    """The manual conversion behind an annotation, if that is its only user; False if its open dims differ."""
    nodes = state.nodes
    users = [user for user, _ in nodes.uses[p]]
    if len(users) != 1 or users[0] not in nodes.conversions:
        return None, True
    dims = partial.open_dims_of(nodes.graph.instructions[nodes.ids[users[0]]].opaque)
    return users[0], dims == nodes.open_dims[p]


def _refine(
    state: FixPoint, p: int, conversion: int | None, source: HloSharding | None, direction: Direction, cause: int
) -> bool:
    own = state.at(p)
    if source is None or own is None or not source.is_tiled():
        return False
    open_dims = state.nodes.open_dims[p]
    if conversion is None:
        refined = partial.refine(own, source, open_dims)
        if refined is not None:
            _set(state, p, refined, direction, cause)
        return refined is not None
    other = state.at(conversion)
    if other is None:
        return False
    manual_first = state.nodes.ops[conversion].target == targets.SHARD_TO_FULL
    from_users = direction == "users"
    pair = partial.refine_pair(own, other, source, open_dims, manual_first=manual_first, from_users=from_users)
    if pair is None:
        return False
    for place, sharding in zip((p, conversion), pair, strict=True):
        _set(state, place, sharding, direction, cause)
    return True


def _set(state: FixPoint, p: int, sharding: HloSharding, direction: Direction, cause: int) -> None:
    old = state.current[p]
    state.put(p, sharding)
    state.note(p, direction, (cause,), old)
