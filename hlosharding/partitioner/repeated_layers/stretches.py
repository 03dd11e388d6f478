"""A long stretch of a sequence of numbers that repeats with a period: layer after layer.

Floor: partitioner.  Sees numbers, no HLO.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_WINDOW = 24
"""Equal numbers in a row after which the same is taken to come again."""
_PERIODS, _OF_ONE_PERIOD = 8, 3
_LONG = 0.1
"""Of the longest stretch."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Stretch(NamedTuple):
    """`count` repeats of `period` numbers from `start` on."""

    start: int
    period: int
    count: int

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return self.count * self.period


def first_stretch(keys: Ints, free: Bools, least: int) -> Stretch | None:
    """The first long one, none of its numbers taken, of those with `least` repeats or more.

    What comes first (the forward layers) is what the others are made of.

    >>> first_stretch(np.arange(400) % 40, np.ones(400, bool), 8)
    Stretch(start=0, period=40, count=10)
    """
    found = [s for period in _periods(keys, free) for s in _stretches(keys, free, period) if s.count >= least]
    longest = max((s.size for s in found), default=0)
    return min((s for s in found if s.size >= _LONG * longest), key=lambda s: s.start, default=None)


def _stretches(keys: Ints, free: Bools, period: int) -> Iterator[Stretch]:
    """The longest few."""
    others = np.flatnonzero(~((keys[:-period] == keys[period:]) & free[:-period] & free[period:]))
    edges = np.concatenate([[-1], others, [len(keys) - period]])
    lengths = np.diff(edges) - 1
    for number in np.argsort(-lengths)[:_OF_ONE_PERIOD].tolist():
        yield Stretch(int(edges[number]) + 1, period, int(lengths[number]) // period + 1)


def between_layers(stretch: Stretch, users: Ints, operands: Ints) -> Stretch:
    """The stretch cut where the fewest values go from one repeat to the next; `users[n]` reads `operands[n]`.

    >>> places = np.arange(1, 400)  # each reads the one before it, and some one that is 20 places off
    >>> between_layers(Stretch(0, 40, 9), np.append(places, places[30::40] + 20), np.append(places - 1, places[30::40]))
    Stretch(start=12, period=40, count=8)
    """
    start, period, count = stretch
    begin = start + count // 2 * period
    near = (operands >= begin - period) & (operands < begin + period) & (users - operands < period)
    last_user = np.zeros(3 * period, np.int64)
    np.maximum.at(last_user, operands[near] - begin + period, users[near] - begin + period)
    alive = np.zeros(4 * period, np.int64)
    made = np.flatnonzero(last_user)
    np.add.at(alive, made + 1, 1)
    np.add.at(alive, last_user[made] + 1, -1)
    offset = int(np.cumsum(alive)[period : 2 * period].argmin())
    return Stretch(start + offset, period, count - 1 if offset else count)


def _periods(keys: Ints, free: Bools) -> list[int]:
    """The most frequent distances from a window of numbers to where it stands again, short ones first."""
    if len(keys) < 2 * _WINDOW:
        return []
    codes = np.random.default_rng(0).integers(1, 1 << 63, int(keys.max()) + 1, dtype=np.uint64)[keys]
    hashes = np.zeros(len(keys) - _WINDOW + 1, np.uint64)
    for place in range(_WINDOW):
        hashes = hashes * _MULTIPLIER + codes[place : place + len(hashes)]
    places = np.flatnonzero(free[: len(hashes)])
    order = places[np.argsort(hashes[places], kind="stable")]
    same = hashes[order[1:]] == hashes[order[:-1]]
    distances, counts = np.unique((order[1:] - order[:-1])[same], return_counts=True)
    return sorted(distances[np.argsort(-counts, kind="stable")[:_PERIODS]].tolist())
