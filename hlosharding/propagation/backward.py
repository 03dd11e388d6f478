"""Backward: what each value takes from its users, one user after the other; answers are remembered with the op.

Floor: propagation.

A worked example.  p0 has no sharding yet (number 0); one user has number 3, another has number 4:

    place  instruction   number    key of p0 at that user            its memo          p0 becomes
    p0     parameter     0
    p1     negate(p0)    3         (own 0, user's 3): 0 * PAIR + 3   {3: 3}            3
    p2     exp(p0)       4         (own 3, user's 4): 3 * PAIR + 4   {3 * PAIR + 4: 0}  3: no improvement

0 in a memo stands for "no improvement", since no sharding found has that number.
"""

from __future__ import annotations

from typing import Any

from hlosharding.propagation.inference import infer_backward
from hlosharding.propagation.op_view import Edge
from hlosharding.propagation.open_dims import refine_backward
from hlosharding.propagation.special_users import TupleReceiver, step_with_special_users
from hlosharding.propagation.state import PropagationState

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
                receiver = receiver.settle()
            key = current[p] * _PAIR + theirs if edge.plain else _key(state, p, user, edge)
            better = memo.get(key)
            if better is None:
                better = memo[key] = _infer(state, p, user, edge)
            if better:
                current[p] = better
                sources.append(user)
        if receiver is not None:
            receiver.settle()
        if sources:
            improved = True
            state.change(p, current[p], "users", tuple(sources), own)
    return improved, refined


def _key(state: PropagationState, p: int, user: int, edge: Edge) -> Any:
    """What decides, where the value's own and the user's sharding do not: other operands, or one leaf of a tuple."""
    own, theirs = state.current[p], state.current[user]
    if edge.leaf is None:
        return own, theirs, *map(state.current.__getitem__, state.beside(user, edge))
    return own * _PAIR + state.leaf_number(theirs, edge.leaf)


def _infer(state: PropagationState, p: int, user: int, edge: Edge) -> int:
    """The number of the improved sharding; 0 for no improvement."""
    state.busy = p
    sharding = state.at(user)
    assert sharding is not None
    others = list(map(state.at, state.beside(user, edge)))
    found = infer_backward(edge, state.at(p), sharding, others, state.level)
    return 0 if found is None else state.number(found)
