"""How well predicted times agree with measured ones: as a ranking, in size, and in what the choice costs.

Floor: search.  Plain numbers; knows nothing of plans.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import exp, log, nan
from statistics import StatisticsError, correlation, median
from typing import NamedTuple

Times = Sequence[tuple[float, float]]
"""(predicted, measured) seconds."""


class Inversion(NamedTuple):
    """Two, by number, of which the first was predicted to be the faster one, and is not."""

    first: int
    second: int
    predicted: float
    """How many times as long as the first the second should take."""
    measured: float
    """How many times as long as the second the first takes."""


def spearman(times: Times) -> float:
    """Rank correlation; nan where there is none (fewer than two, or all alike).

    >>> spearman([(1.0, 10.0), (2.0, 30.0), (3.0, 20.0)])
    0.5
    """
    if len(times) < 2:
        return nan
    try:
        return correlation(*(_ranks(side) for side in zip(*times, strict=True)))
    except StatisticsError:  # all alike
        return nan


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of theirs."""
    order = sorted(values)
    return [(bisect_left(order, value) + 1 + bisect_right(order, value)) / 2 for value in values]


def common_scale(times: Times) -> float:
    """The factor on all predictions that brings the median of predicted to measured to one.

    >>> round(common_scale([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]), 6)
    2.0
    """
    return exp(median(log(measured / predicted) for predicted, measured in times)) if times else nan


def median_error(times: Times, *, scale: float = 1.0) -> float:
    """Median of |scale * predicted / measured - 1|.

    >>> median_error([(1.0, 2.0), (2.0, 4.0), (3.0, 3.0)])
    0.5
    """
    return median(abs(scale * predicted / measured - 1) for predicted, measured in times) if times else nan


def regret(times: Times) -> float:
    """How much longer the best by prediction takes than the best there is, as a share.

    >>> regret([(1.0, 12.0), (2.0, 10.0), (3.0, 20.0)])
    0.19999999999999996
    """
    if not times:
        return nan
    return min(times)[1] / min(measured for _, measured in times) - 1


def find_inversions(times: Times, *, most: int = 5) -> list[Inversion]:
    """Pairs in the wrong order, those first for which prediction and measurement differ most.

    >>> find_inversions([(1.0, 30.0), (2.0, 10.0), (3.0, 40.0)])
    [Inversion(first=0, second=1, predicted=2.0, measured=3.0)]
    """
    found = sorted(_all_inversions(times), key=lambda each: -each.predicted * each.measured)
    return found[:most]


def _all_inversions(times: Times) -> Iterator[Inversion]:
    for first, second in combinations(range(len(times)), 2):
        if times[first] > times[second]:
            first, second = second, first
        (early, slow), (late, fast) = times[first], times[second]
        if early < late and slow > fast:
            yield Inversion(first, second, late / early, slow / fast)
