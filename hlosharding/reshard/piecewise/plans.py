"""Piecewise plans of a reshard: the best groupings of its pieces, as steps.

Floor: reshard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlosharding.reshard.objectives import combined
from hlosharding.reshard.piecewise.assign_rounds import pieces_in_rounds
from hlosharding.reshard.piecewise.groupings import groupings
from hlosharding.reshard.piecewise.piece_moves import MOST_PIECES, moves_between
from hlosharding.reshard.planned_steps import PlannedSteps, Steps
from hlosharding.reshard.request import Reshard


@dataclass(frozen=True, slots=True)
class PiecewiseSearch:
    """How widely to look."""

    most_pieces: int | None = MOST_PIECES
    kept: int = 1
    """So many of the best groupings become plans."""
    near: float = 1.0
    """Unless their estimate is so many times dearer than the best plan known."""


def piecewise_plans(reshard: Reshard, search: PiecewiseSearch, best: PlannedSteps | None) -> Iterator[Steps]:
    """The best piecewise plans; none if there are too many pieces, or if even the estimate is worse than `best`."""
    moves = moves_between(*reshard.layouts, reshard.machine, search.most_pieces)
    if moves is None:
        return
    prices = [
        (combined(reshard.objective, found.mean_bytes, found.seconds), found.rounds, found)
        for found in groupings(moves, reshard.shape)
    ]
    limit = None
    if best is not None and best.fits(reshard.memory_limit):
        limit = search.near * best.cost(reshard.objective)
    for cost, _, grouping in sorted(prices, key=lambda price: price[:2])[: search.kept]:
        if limit is None or cost < limit:
            yield (pieces_in_rounds(moves, grouping),)
