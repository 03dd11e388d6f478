"""Choices that another is never worse than: left out.

Floor: search.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hlosharding.search.choices.problem import Integers, Numbers, SelectionProblem

MOST_COMPARED = 1_000_000
"""Costs: nodes with more to compare keep all their choices."""


def undominated(problem: SelectionProblem) -> list[Integers]:
    """[node]: choices that are left."""
    kept = [np.arange(len(costs)) for costs in problem.costs]
    waiting = [node for node, costs in enumerate(problem.costs) if len(costs) > 1]
    queued = set(waiting)
    # `waiting` grows while it is gone through: where a choice went, others of its neighbours may be dominated now.  It
    # ends, since nodes are put there only when a choice has gone.
    for node in waiting:
        queued.discard(node)
        others = sum(len(kept[other]) for other in problem.neighbours[node])
        if len(kept[node]) < 2 or len(kept[node]) ** 2 * others > MOST_COMPARED:
            continue
        worse = _dominated(problem, node, kept)
        if worse.any():
            kept[node] = kept[node][~worse]
            for other in problem.neighbours[node]:
                if other not in queued and len(kept[other]) > 1:
                    queued.add(other)
                    waiting.append(other)
    return kept


def _dominated(problem: SelectionProblem, node: int, kept: list[Integers]) -> npt.NDArray[np.bool_]:
    """[choice that is left]: is another never dearer, whatever its neighbours choose, and never takes more memory?"""
    own = kept[node]
    costs = problem.costs[node][own]
    dearer = _less(costs[:, None], costs[None])
    for other, table in problem.neighbours[node].items():
        part = table[np.ix_(own, kept[other])]
        dearer = dearer + _less(part[:, None], part[None]).max(axis=2)
    better = dearer <= 0
    for buffer in problem.buffers[node]:
        usage = problem.usages[buffer][own]
        better &= usage[:, None] <= usage[None]
    # Of those that are equal the first is kept.
    return np.any(better & ~(better.T & np.tri(len(own), dtype=bool)), axis=0)


def _less(first: Numbers, second: Numbers) -> Numbers:
    """What the first costs more than the second; nothing where both are forbidden."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(first - second, nan=0.0, posinf=np.inf, neginf=-np.inf)
