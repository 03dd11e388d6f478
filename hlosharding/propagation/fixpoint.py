"""The fix point: sweeps over all computations, forward then backward, until nothing changes, level after level.

Floor: propagation.  Knows order and levels; what a step does stands below, and in the steps beside it.
"""

from __future__ import annotations

from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.propagation import policy
from hlosharding.propagation.inference import infer_backward, infer_forward
from hlosharding.propagation.op_view import Edge, OpView
from hlosharding.propagation.open_dims import group_sweep, refine_backward, refine_forward
from hlosharding.propagation.special_users import TupleReceiver, look_ahead, step_with_special_users
from hlosharding.propagation.state import PropagationState, clash
from hlosharding.propagation.worklist import DONE, LATER
from hlosharding.sharding import HloSharding


def run_level(state: PropagationState, level: int) -> bool:
    """Sweep until a whole round changes nothing; was anything improved?  For levels 0 to 3, and once more for 3."""
    state.level = level
    # XLA runs the last level once more when shard groups have been made to agree.  Where nothing has changed since the
    # first time, there is nothing to find.
    if state.is_settled and level == policy.LAST_LEVEL:
        return False
    _start_level(state, level)
    # For the time being: a change in any round below takes it back.
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
    # Forward has come past all up to `last`, backward past all from `first` on: as yet past nothing here.
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
    # Where its operands tie, a dot depends on users far ahead, and a change of these calls only their neighbours back.
    for p in (*nodes.look_ahead, *nodes.open_dims):
        forward[p] = LATER
    for p in nodes.special_backward:
        backward[p] = LATER
    # Below this level a broadcast took nothing from users and gave nothing: what they saw counts from here on.
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


# ---- forward: what each op takes from its operands.  Inference is asked once, its answer remembered with the op
#
# A worked example.  Shardings are numbers, 0 is none; here p2 has none yet, and its operands have number 3 and none:
#
#     place  instruction     number        key of p2          the op's memo
#     p0     parameter       3             (own, operands)    {(0, 3, 0): (3, (0,), True)}
#     p1     parameter       0             = (0, 3, 0)
#     p2     add(p0, p1)     0
#
# The answer says: take number 3, from operand 0, and there is no more to be had.  Equal layers share their ops and so
# their memos: the add of the next layer, under a key that was met before, costs one dictionary look-up.


Answer = tuple[int, tuple[int, ...] | None, bool] | None
"""The new number, the operand positions that it came from (None: all), and whether there is no more to be had.

None: the op takes nothing.
"""
_UNKNOWN: Any = object()
_TIE: Any = object()
"""Remembered where operands tie: then the answer also depends on what the users ahead would like."""


def forward_sweep(state: PropagationState, start: int, end: int) -> tuple[bool, bool]:
    """Try the places to do from first to last, operands before users: (improved, refined)."""
    nodes, current = state.nodes, state.current
    inputs, ops, open_dims, which = nodes.inputs, nodes.ops, nodes.refined_forward, _memo_of(state.level)
    improved = refined = False
    for p in state.forward.upwards(start, end):
        if p in open_dims:
            refined |= refine_forward(state, p)
            continue
        reads = inputs[p]
        # Most ops have one operand or two; for those the key is made without an inner loop.
        if len(reads) == 2:
            key = current[p], current[reads[0]], current[reads[1]]
        elif len(reads) == 1:
            key = current[p], current[reads[0]]
        else:
            key = (current[p], *[current[q] for q in reads])
        answer = ops[p].memo[which].get(key, _UNKNOWN)
        if answer is _UNKNOWN or answer is _TIE:
            answer = _infer(state, p, key, known_tie=answer is _TIE)
        if answer is not None:
            improved = True
            _take(state, p, answer)
    return improved, refined


def _memo_of(level: int) -> int:
    """Which of an op's two memos: level 0 knows no merging, the others answer alike."""
    return 1 if level else 0


def _take(state: PropagationState, p: int, answer: tuple[int, tuple[int, ...] | None, bool]) -> None:
    number, positions, settled = answer
    reads = state.nodes.inputs[p]
    state.change(p, number, "operands", reads if positions is None else tuple([reads[n] for n in positions]))
    # What is connected to p across computations has followed it, and p may read one of these: then it is to be tried
    # again, and the answer, which knew the old operands, does not settle that.
    if settled and p not in state.nodes.connected:
        state.forward.state[p] = DONE


def _infer(state: PropagationState, p: int, key: Any, *, known_tie: bool) -> Answer:
    """Ask inference and remember.  Where operands tie, what the users ahead would like is part of the key."""
    state.busy = p
    op = state.nodes.ops[p]
    memo = op.memo[_memo_of(state.level)]
    ahead: list[HloSharding | None] = []

    def users_ahead() -> HloSharding | None:
        ahead.append(look_ahead(state, p))
        return ahead[0]

    if known_tie:
        tie = (key, state.number(users_ahead()))
        if tie in memo:
            return memo[tie]
    outcome = infer_forward(op, state.at(p), _operands_of(state, key), state.level, users_ahead)
    answer: Answer = None
    if outcome is not None:
        number, positions = state.number(outcome[0]), outcome[1]
        # None stands for all operands, so that their places need not be gathered each time the answer is used.
        from_all = positions == tuple(range(len(key) - 1))
        # Who had to look ahead may take more when the users there have changed.
        settled = not ahead and _takes_no_more(state, op, (number, *key[1:]))
        answer = number, None if from_all else positions, settled
    if ahead:
        memo[key] = _TIE
        memo[key, state.number(ahead[0])] = answer
    else:
        memo[key] = answer
    return answer


def _operands_of(state: PropagationState, key: tuple[int, ...]) -> list[HloSharding | None]:
    """The operands' shardings in a key."""
    return [state.shardings[n] for n in key[1:]]


def _takes_no_more(state: PropagationState, op: OpView, key: tuple[int, ...]) -> bool:
    """Would the op, having taken from its operands, take nothing more?  Then trying it again is spared."""
    memo = op.memo[_memo_of(state.level)]
    if key in memo:
        return memo[key] is None
    asked: list[None] = []
    operands = _operands_of(state, key)
    # An answer for which the users ahead were asked holds for these users alone, and not under this key.
    if infer_forward(op, state.shardings[key[0]], operands, state.level, lambda: asked.append(None)) or asked:
        return False
    memo[key] = None
    return True


# ---- backward: what each value takes from its users, one user after the other; answers are remembered with the op
#
# A worked example.  p0 has no sharding yet (number 0); one user has number 3, another has number 4:
#
#     place  instruction   number    key of p0 at that user            its memo          p0 becomes
#     p0     parameter     0
#     p1     negate(p0)    3         (own 0, user's 3): 0 * PAIR + 3   {3: 3}            3
#     p2     exp(p0)       4         (own 3, user's 4): 3 * PAIR + 4   {3 * PAIR + 4: 0}  3: no improvement
#
# 0 in a memo stands for "no improvement", since no sharding found has that number.


_PAIR = 1 << 24
"""Two sharding numbers in one key: own * _PAIR + user's."""


def backward_sweep(state: PropagationState, start: int, end: int) -> tuple[bool, bool]:
    """Try the places to do from last to first, users before operands: (improved, refined)."""
    nodes, level, current = state.nodes, state.level, state.current
    uses, special, open_dims = nodes.uses, nodes.special_backward, nodes.refined_backward
    improved = refined = False
    for p in state.backward.downwards(start, end):
        if p in open_dims:
            refined |= refine_backward(state, p)
            continue
        if p in special:
            improved |= step_with_special_users(state, p)
            continue
        own, sources, receiver = current[p], [], None
        for user, edge in uses[p]:
            theirs, memo = current[user], edge.memos[level]
            if not theirs or memo is None:
                continue
            if edge.takes_element:
                receiver = receiver or TupleReceiver(state, p)
                sources += [user] if receiver.take(user, edge) else []
                continue
            if receiver is not None:
                # This user reads the tuple as a whole, and is to meet what the readers of elements before it gave.
                # Nothing is left to settle then: a new receiver begins behind it.
                receiver = receiver.settle()
            key = current[p] * _PAIR + theirs if edge.plain else _key_of_use(state, p, user, edge)
            better = memo.get(key)
            if better is None:
                better = memo[key] = _infer_from_user(state, p, user, edge)
            if better:
                # As in XLA's InferShardingFromUsers each user meets what those before it have made of the value.
                # Neighbours are called back once, behind the last.
                current[p] = better
                sources.append(user)
        if receiver is not None:
            receiver.settle()
        if sources:
            improved = True
            state.change(p, current[p], "users", tuple(sources), own)
    return improved, refined


def _key_of_use(state: PropagationState, p: int, user: int, edge: Edge) -> Any:
    """What decides, where the value's own and the user's sharding do not: other operands, or one leaf of a tuple."""
    own, theirs = state.current[p], state.current[user]
    if edge.leaf is None:
        return own, theirs, *map(state.current.__getitem__, state.beside(user, edge))
    return own * _PAIR + state.leaf_number(theirs, edge.leaf)


def _infer_from_user(state: PropagationState, p: int, user: int, edge: Edge) -> int:
    """The number of the improved sharding; 0 for no improvement."""
    state.busy = p
    sharding = state.at(user)
    assert sharding is not None
    others = list(map(state.at, state.beside(user, edge)))
    found = infer_backward(edge, state.at(p), sharding, others, state.level)
    return 0 if found is None else state.number(found)
