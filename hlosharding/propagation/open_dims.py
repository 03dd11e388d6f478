"""Annotations with open dims: when they take tiles from operands and users, alone or with the manual conversion behind.

Floor: propagation.
"""

from __future__ import annotations

from hlosharding.errors import PropagationError
from hlosharding.ir import custom_call_targets as targets
from hlosharding.ir import unspecified_dims
from hlosharding.propagation import policy
from hlosharding.propagation.provenance import Direction
from hlosharding.propagation.special_users import offer
from hlosharding.propagation.state import PropagationState
from hlosharding.propagation.worklist import DONE, TODO
from hlosharding.sharding import HloSharding, merge_if_compatible, replicate_on_all_dims_except


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
    dims = open_dims_of(nodes.graph.instructions[nodes.ids[users[0]]].opaque)
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
        refined = refine(own, source, open_dims)
        if refined is not None:
            _overwrite(state, p, refined, direction, cause)
        return refined is not None
    other = state.at(conversion)
    if other is None:
        return False
    manual_first = state.nodes.ops[conversion].target == targets.SHARD_TO_FULL
    from_users = direction == "users"
    pair = refine_pair(own, other, source, open_dims, manual_first=manual_first, from_users=from_users)
    if pair is None:
        return False
    for place, sharding in zip((p, conversion), pair, strict=True):
        _overwrite(state, place, sharding, direction, cause)
    return True


def _overwrite(state: PropagationState, p: int, sharding: HloSharding, direction: Direction, cause: int) -> None:
    old = state.current[p]
    state.put(p, sharding)
    state.note(p, direction, (cause,), old)


# ---- which tiles they may take, alone or together with the manual conversion behind them
#
# Follows XLA's InferUnspecifiedDims..., RefineManualAutoShardingFromAuto and ...FromManual.


def open_dims_of(opaque: str) -> tuple[int, ...] | None:
    """The open dims in an opaque string; None where it says something else."""
    try:
        return unspecified_dims(opaque)
    except PropagationError:
        return None


def refine(own: HloSharding, source: HloSharding, open_dims: tuple[int, ...]) -> HloSharding | None:
    """`own` with the tiles that `source` has on the open dims, or None.

    >>> own = HloSharding.parse("{devices=[2,1,2]<=[4] last_tile_dim_replicate}")
    >>> str(refine(own, HloSharding.parse("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"), (1,)))
    '{devices=[2,2]<=[4]}'
    """
    if not source.is_tiled() or own.is_manual():
        return None
    return merge_if_compatible(replicate_on_all_dims_except(source, open_dims), own)


def refine_pair(
    annotation: HloSharding,
    conversion: HloSharding,
    source: HloSharding,
    open_dims: tuple[int, ...],
    *,
    manual_first: bool,
    from_users: bool,
) -> tuple[HloSharding, HloSharding] | None:
    """New shardings of an annotation and of the manual conversion behind it.

    `manual_first`: the annotation is on the manual side.  `source` is on the side of the annotation, or, seen
    `from_users`, on the other one.
    """
    auto, manual = (conversion, annotation) if manual_first else (annotation, conversion)
    from_manual = manual_first != from_users
    found = (_from_manual if from_manual else _from_auto)(source, open_dims, auto, manual)
    if found is None:
        return None
    new_auto, new_manual = found
    return (new_manual, new_auto) if manual_first else (new_auto, new_manual)


def _can_refine(auto: HloSharding, manual: HloSharding) -> bool:
    """The manual side must have a manual and a replicated subgroup, the auto side no manual one."""
    return (
        manual.is_manual_subgroup()
        and not auto.is_manual_subgroup()
        and manual.has_partial_replication()
        and len(manual.subgroup_types) == 2
    )


def _from_auto(
    source: HloSharding, open_dims: tuple[int, ...], auto: HloSharding, manual: HloSharding
) -> tuple[HloSharding, HloSharding] | None:
    if not _can_refine(auto, manual):
        return None
    kept = replicate_on_all_dims_except(source, open_dims)
    if not kept.is_tiled():
        return None
    new_auto = merge_if_compatible(kept, auto)
    if new_auto is None:
        return None
    # To merge into the manual side, its manual dim is treated as one more data dim, just before the replicated one.
    rank = kept.tiled_data_rank
    dims = kept.tiles.dims
    widened = HloSharding.partial_tile(kept.tiles.reshape((*dims[:rank], 1, *dims[rank:])), kept.metadata)
    merged = merge_if_compatible(widened, HloSharding.partial_tile(manual.tiles, manual.metadata))
    if merged is None:
        return None
    types = ("manual", "replicated") if merged.has_partial_replication() else ("manual",)
    return new_auto, HloSharding.subgroup(merged.tiles, types, merged.metadata)


def _from_manual(
    source: HloSharding, open_dims: tuple[int, ...], auto: HloSharding, manual: HloSharding
) -> tuple[HloSharding, HloSharding] | None:
    if not source.is_manual_subgroup() or not _can_refine(auto, manual):
        return None
    kept = replicate_on_all_dims_except(source, open_dims)
    if not kept.is_tiled():
        return None
    new_manual = merge_if_compatible(kept, manual)
    if new_manual is None:
        return None
    all_copies = HloSharding.subgroup(kept.tiles, ("replicated",) * len(kept.subgroup_types), kept.metadata)
    new_auto = merge_if_compatible(all_copies, auto)
    return None if new_auto is None else (new_auto, new_manual)


# ---- shard groups: values that are to be sharded alike hear one another before each sweep
#
# Which values form a group is said by annotations; that the members of a `shard_as` group end up with one sharding is
# seen to at the end of the pass.


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
