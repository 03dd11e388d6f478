"""The fix point: sweeps over all computations, forward then backward, until nothing changes, level after level.

Floor: propagation.  Knows order and levels; what a step does stands in `forward`, `backward` and the steps beside them.
"""

from __future__ import annotations

from hlosharding.errors import ShardingError
from hlosharding.propagation import policy
from hlosharding.propagation.shard_groups import group_sweep
from hlosharding.propagation.state import PropagationState, clash
from hlosharding.propagation.sweeps import backward_sweep, forward_sweep
from hlosharding.propagation.worklist import LATER


def run_level(state: PropagationState, level: int) -> bool:
    """Sweep until a whole round changes nothing; was anything improved?  For levels 0 to 3, and once more for 3."""
    state.level = level
    if state.is_settled and level == policy.LAST_LEVEL:
        return False
    _start_level(state, level)
    state.is_settled = level == policy.LAST_LEVEL
    changed = False
    try:
        while True:
            improved, refined = _round(state)
            changed |= improved
            if not (improved or refined):
                break
    except ShardingError as error:
        raise clash(state.nodes.graph, state.nodes.ids[state.busy], error) from error
    state.hand_over_log()
    return changed


def _round(state: PropagationState) -> tuple[bool, bool]:
    """Every computation once: (improved, refined)."""
    improved = refined = False
    for start, end in state.nodes.spans:
        if _has_work(state, start, end):
            more, finer = _sweep(state, start, end)
            improved, refined = improved | more, refined | finer
        state.forward.end_round(start, end)
        state.backward.end_round(start, end)
    return improved, refined


def _has_work(state: PropagationState, start: int, end: int) -> bool:
    tilings = state.forward.has_work(start, end) or state.backward.has_work(start, end)
    return tilings or bool(state.nodes.group_of)


def _sweep(state: PropagationState, start: int, end: int) -> tuple[bool, bool]:
    """One computation once, shard groups first, then forward, then backward: (improved, refined)."""
    improved = refined = False
    if state.nodes.group_of:
        improved, refined = group_sweep(state, start, end)
    state.forward.first, state.forward.last = 0, start - 1
    state.backward.first, state.backward.last = end, end - 1
    for sweep in (forward_sweep, backward_sweep):
        more, finer = sweep(state, start, end)
        improved, refined = improved | more, refined | finer
    return improved, refined


# ---- what a level begins with


def _start_level(state: PropagationState, level: int) -> None:
    nodes, forward, backward = state.nodes, state.forward.state, state.backward.state
    if level <= 1:
        # Level 0 knows no merging: nothing that was tried there counts.
        _mark_neighbours(state)
    for p in (*nodes.look_ahead, *nodes.open_dims):
        forward[p] = LATER
    for p in nodes.special_backward:
        backward[p] = LATER
    if level == policy.BROADCAST_BACKWARD_LEVEL:
        for p in nodes.beside_broadcasts:
            backward[p] = LATER
    if level == policy.BROADCAST_FORWARD_LEVEL:
        _mark_broadcasts(state)
    state.forward.start_level(level)
    state.backward.start_level(level)
    state.done_group.clear()


def _mark_broadcasts(state: PropagationState) -> None:
    """From here on they take from their operands: what was remembered of them does not hold any more."""
    nodes = state.nodes
    for p in nodes.broadcasts:
        if state.current[nodes.operands[p][0]]:
            state.forward.state[p] = LATER
        nodes.ops[p].memo[1].clear()


def _mark_neighbours(state: PropagationState) -> None:
    """Only who sees a sharding can take one; without SPMD, gather and scatter replicate whatever they see."""
    nodes, forward, backward = state.nodes, state.forward.state, state.backward.state
    if not nodes.spmd:
        forward[:] = backward[:] = bytes([LATER]) * len(forward)
        return
    for p, number in enumerate(state.current):
        if not number:
            continue
        for operand in nodes.operands[p]:
            backward[operand] = LATER
        for user, _ in nodes.uses[p]:
            forward[user] = LATER
        for parameter in nodes.passed_to.get(p, ()):
            forward[parameter] = LATER
