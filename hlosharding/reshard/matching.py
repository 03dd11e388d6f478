"""Which device shall make which tile: that of which it holds most.

Floor: reshard.  Knows layouts; nothing of steps.
"""

from __future__ import annotations

import numpy as np

from hlosharding.reshard.layout import Layout, Table

MOST_MATCHED = 64
"""Devices: the matching is quadratic."""


def shared(source: Layout, target: Layout) -> Table:
    """[device, other]: elements of the other's target tile that the device holds."""
    (low, high), (want_low, want_high) = source.bounds(), target.bounds()
    both = np.minimum(high[:, None], want_high[None]) - np.maximum(low[:, None], want_low[None])
    return np.maximum(both, 0).prod(axis=2)


def matched(score: Table) -> list[int]:
    """For each row a column of its own: greedily, the largest score first, the diagonal before others.

    >>> matched(np.array([[3, 5], [0, 4]]))
    [1, 0]
    """
    n = len(score)
    order = np.argsort(-(2 * score + np.eye(n, dtype=np.int64)), axis=None, kind="stable")
    found, taken = [-1] * n, set[int]()
    for flat in order.tolist():
        row, column = divmod(flat, n)
        if found[row] < 0 and column not in taken:
            found[row] = column
            taken.add(column)
    return found
