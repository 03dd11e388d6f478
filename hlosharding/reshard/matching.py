"""Which device shall make which tile, and whose tile a device takes where tiles only change places.

Floor: reshard.  Knows layouts; nothing of steps.
"""

from __future__ import annotations

import numpy as np

from hlosharding.reshard.layout import Layout, Table

MOST_MATCHED = 64
"""Devices: the matching is quadratic.  With half of it 6 plans are slower (at most 1.6), with double 2 faster (0.5)."""


def count_shared(source: Layout, target: Layout) -> Table:
    """[device, other]: elements of the other's target tile that the device holds."""
    (low, high), (want_low, want_high) = source.bounds, target.bounds
    both = np.minimum(high[:, None], want_high[None]) - np.maximum(low[:, None], want_low[None])
    return np.maximum(both, 0).prod(axis=2)


def staying_first(score: Table) -> Table:
    """The same order of scores, but that among equal ones those on the diagonal come first.

    >>> staying_first(np.array([[3, 3], [1, 2]])).tolist()
    [[7, 6], [2, 5]]
    """
    return 2 * score + np.eye(len(score), dtype=np.int64)


def match_rows(score: Table) -> list[int]:
    """For each row a column of its own: greedily, the largest score first, on a tie in the order of the table.

    Not the assignment of the largest total (scipy.optimize.linear_sum_assignment): a plan pays for its busiest device
    and its rounds, not for the total, and of 1950 random plans it made six dearer and two cheaper.

    >>> match_rows(np.array([[3, 5], [0, 4]]))
    [1, 0]
    """
    order = np.argsort(-score, axis=None, kind="stable")
    found, taken = [-1] * len(score), set[int]()
    for row, column in np.stack(np.unravel_index(order, score.shape), axis=1).tolist():
        if found[row] < 0 and column not in taken:
            found[row] = column
            taken.add(column)
    return found


def taken_from(have: Table, want: Table) -> Table:
    """[device]: whose tile it takes, where devices hold the tiles of numbers `have` and are to hold those of `want`.

    Devices that hold what they want keep it; the others pair up within each tile.

    >>> taken_from(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])).tolist()
    [0, 2, 1, 3]
    """
    devices = np.arange(len(have))
    moving = devices[have != want]
    staying = devices[have == want]
    sources = moving[np.argsort(have[moving], kind="stable")]
    targets = moving[np.argsort(want[moving], kind="stable")]
    found = np.empty_like(devices)
    found[staying] = staying
    found[targets] = sources
    return found
