"""A few of all combinations that have every pair of values together: most faults need but two settings to meet.

>>> chosen = pairwise([(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)])
>>> chosen, sorted({(a, c) for a, _, c in chosen})
([(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)], [(0, 0), (0, 1), (1, 0), (1, 1)])
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import TypeVar

Row = TypeVar("Row", bound=tuple[Hashable, ...])
Pair = tuple[int, Hashable, int, Hashable]


def pairs(row: tuple[Hashable, ...]) -> set[Pair]:
    """Every two values of a combination, with their places.

    >>> sorted(pairs(("a", "b", "c")))
    [(0, 'a', 1, 'b'), (0, 'a', 2, 'c'), (1, 'b', 2, 'c')]
    """
    return {(i, a, j, b) for (i, a), (j, b) in combinations(enumerate(row), 2)}


def pairwise(rows: Sequence[Row]) -> list[Row]:
    """Of the combinations so many that each pair that is in any of them is in one of these.

    Time and again the one with the most pairs that are missing, the first of several: the same on every run.
    """
    missing = set[Pair]().union(*(pairs(row) for row in rows))
    chosen: list[Row] = []
    while missing:
        best = max(rows, key=lambda row: len(pairs(row) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen
