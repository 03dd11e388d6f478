"""The least sum of tables over variables that share them: variables are eliminated one by one (dynamic programming)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float32]
Factor = tuple[tuple[int, ...], Table]
"""Variables, ascending, and what each combination of their states costs."""
MOST_STATES = 1 << 27


class TooLargeError(Exception):
    """More combinations than fit into memory."""


def least_sum(num_states: Sequence[int], factors: Iterable[Factor]) -> list[int]:
    """The state of each variable under which all tables together are least.

    >>> apart = np.array([[0, 5], [5, 0]], np.float32)
    >>> least_sum((2, 2), [((0, 1), apart), ((0,), np.array([3, 0], np.float32)), ((1,), np.array([0, 4], np.float32))])
    [0, 0]
    """
    left, todo, undone = list(factors), set(range(len(num_states))), list[tuple[int, tuple[int, ...], Table]]()
    while todo:
        variable = min(sorted(todo), key=lambda v: _size(num_states, left, v))
        mine = [f for f in left if variable in f[0]]
        left = [f for f in left if variable not in f[0]]
        scope = tuple(sorted({v for names, _ in mine for v in names} | {variable}))
        axis, others = scope.index(variable), tuple(v for v in scope if v != variable)
        joint = _joined(scope, num_states, mine)
        undone.append((variable, others, joint.argmin(axis)))
        left.append((others, joint.min(axis)))
        todo.remove(variable)
    return _states(num_states, undone)


def _states(num_states: Sequence[int], undone: Sequence[tuple[int, tuple[int, ...], Table]]) -> list[int]:
    states = [0] * len(num_states)
    for variable, others, best in reversed(undone):
        states[variable] = int(best[tuple(states[v] for v in others)])
    return states


def _size(num_states: Sequence[int], factors: Sequence[Factor], variable: int) -> int:
    scope = {v for names, _ in factors if variable in names for v in names} | {variable}
    size = 1
    for v in scope:
        size *= num_states[v]
    return size


def _joined(scope: tuple[int, ...], num_states: Sequence[int], factors: Sequence[Factor]) -> Table:
    shape = tuple(num_states[v] for v in scope)
    if np.prod(shape, dtype=np.float64) > MOST_STATES:
        raise TooLargeError(f"{shape} combinations")
    joint = np.zeros(shape, np.float32)
    for names, table in factors:
        joint += table.reshape(tuple(num_states[v] if v in names else 1 for v in scope))
    return joint
