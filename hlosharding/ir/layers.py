"""Repeated stretches in a sequence of ops: where a layer, or an optimizer's update, occurs again and again.

Floor: ir.  Sees ops as numbers (equal numbers: equal ops) and as references to earlier ones; no HLO.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MIN_LENGTH = 8
"""Shorter stretches are left where they are.  With double a quarter of the user's functions are left out, with half a
quarter are added; of programs that know no user's functions none differs."""
MIN_SAVING = 60
"""Lines that a function must save.  With a quarter programs are 1.002 times as long, with four times 0.994 times."""
_TRIED, _KEPT = 64, 4
"""Groups of one length that are looked at, and kept.  With one of them programs that know no user's functions are 1.012
times as long; with twice as many none differs."""
_WINDOW = 24
"""Equal numbers in a row after which the same is taken to come again; half and double find the same layers in the four
models of `benchmarks.deep_models`, as they do of the next three."""
_PERIODS, _OF_ONE_PERIOD = 8, 3
"""Distances that are looked at, and the longest stretches of each.  With one distance backward layers are taken for the
first ones; one stretch suffices to these models."""
_LONG = 0.1
"""Of the longest stretch: a shorter one is no layer, even if it comes first."""
# Odd, so that it has an inverse modulo 2^64: by its powers a window's hash is moved to the front.
_MULTIPLIER = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Repeat:
    """Equal stretches of `length` lines, one beginning at each of `starts` (ascending, not overlapping)."""

    length: int
    starts: tuple[int, ...]

    @property
    def saving(self) -> int:
        """Lines not written."""
        return self.length * (len(self.starts) - 1)


class _Windows:
    """Hashes of all stretches of one length, from prefix sums: equal stretches have equal hashes."""

    def __init__(self, keys: np.ndarray) -> None:
        # Always from the same seed: groups of equally many stretches are tried in the order of their hashes, so that
        # another seed may find others.
        codes = np.random.default_rng(0).integers(1, 1 << 63, int(keys.max()) + 1, dtype=np.uint64)
        self._sums = np.zeros(len(keys) + 1, np.uint64)
        np.cumsum(codes[keys] * _powers(_MULTIPLIER, len(keys)), out=self._sums[1:])
        self._shift = _powers(pow(_MULTIPLIER, -1, 1 << 64), len(keys))

    def hashes(self, length: int) -> np.ndarray:
        sums = self._sums
        return (sums[length:] - sums[:-length]) * self._shift[: len(sums) - length]


def _powers(base: int, count: int) -> np.ndarray:
    """1, base, base^2 ... modulo 2^64."""
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


def find_repeats(
    keys: Sequence[int],
    references: Sequence[tuple[tuple[int, int], ...]],
    alive: Sequence[int] = (),
    *,
    min_length: int = MIN_LENGTH,
    min_saving: int = MIN_SAVING,
) -> list[Repeat]:
    """Stretches worth a function, greedily by lines saved.

    `references[i]` lists for each operand of line i (producing line, or -1 for what comes from outside; which of its
    values).  Stretches are equal when their keys are and their references point to the same places inside.
    `alive[i]` is the number of values that live across the border before line i: stretches begin where few do.

    >>> keys = [0] + [1, 2, 3, 4, 5, 6, 7, 8] * 10
    >>> find_repeats(keys, [()] * len(keys))
    [Repeat(length=8, starts=(1, 9, 17, 25, 33, 41, 49, 57, 65, 73))]
    """
    if len(keys) < 2 * min_length:
        return []
    numbers = np.asarray(keys)
    windows = _Windows(numbers)
    covered = np.zeros(len(keys), bool)
    found: list[Repeat] = []
    # Each pass covers lines or is the last: two to twelve of them, and no bound, find the same.
    while True:
        candidates = _candidates(windows, covered, min_length, min_saving)
        before = len(found)
        for candidate in candidates:
            # A small gain may stand in the way of a larger one, which the next pass finds.
            if len(found) > before and 2 * candidate.saving < candidates[0].saving:
                break
            extended = _extended(candidate, numbers, covered)
            repeat = _checked(_turned(extended, numbers, covered, alive) if alive else extended, references)
            if repeat is not None and repeat.length >= min_length and repeat.saving >= min_saving:
                for start in repeat.starts:
                    covered[start : start + repeat.length] = True
                found.append(repeat)
        if len(found) == before:
            return found


def _candidates(windows: _Windows, covered: np.ndarray, min_length: int, min_saving: int) -> list[Repeat]:
    """The best groups of equal stretches for each of a geometric row of lengths, best first."""
    blocked = np.concatenate([[0], np.cumsum(covered)])
    candidates: list[Repeat] = []
    length = max(_longest_free_run(covered) // 2, min_length)
    while length >= min_length:
        free = np.flatnonzero(blocked[length:] == blocked[:-length])
        candidates += _best_groups(windows.hashes(length)[free], free, length, min_saving)
        length = int(length * 0.88)
    return sorted(candidates, key=lambda r: -r.saving)


def _longest_free_run(covered: np.ndarray) -> int:
    edges = np.flatnonzero(np.concatenate([[True], covered, [True]]))
    # Repeats may lie in different runs, so twice the longest run is the limit of what halving would allow.
    return 2 * int(np.diff(edges).max() - 1) if len(edges) > 2 else len(covered)


def _best_groups(hashes: np.ndarray, places: np.ndarray, length: int, min_saving: int) -> list[Repeat]:
    """A few groups that save most; of those that are one group at different offsets, the first."""
    if len(hashes) < 2:
        return []
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    begins = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    counts = np.diff(np.concatenate([begins, [len(ranked)]]))
    claimed = np.zeros(int(places[-1]) + length, bool)
    found: list[Repeat] = []
    for group in np.argsort(-counts, kind="stable")[:_TRIED]:
        if (counts[group] - 1) * length < min_saving or len(found) == _KEPT:
            break
        starts = _apart(np.sort(places[order[begins[group] : begins[group] + counts[group]]]), length)
        if length * (len(starts) - 1) >= min_saving and not claimed[list(starts)].any():
            found.append(Repeat(length, starts))
            for start in starts:
                # What begins less than a length before overlaps this stretch: mostly the same group at another offset.
                claimed[max(0, start - length) : start + length] = True
    return found


def _apart(places: np.ndarray, length: int) -> tuple[int, ...]:
    kept: list[int] = []
    for place in places.tolist():
        if not kept or place >= kept[-1] + length:
            kept.append(place)
    return tuple(kept)


def _extended(repeat: Repeat, keys: np.ndarray, covered: np.ndarray) -> Repeat:
    """The same stretches made longer, to the right and to the left, while they stay equal and free.

    Stretches that earlier picks have covered meanwhile are dropped first.
    """
    free = [s for s in repeat.starts if not covered[s : s + repeat.length].any()]
    first = keys[free[0] : free[0] + repeat.length] if free else keys[:0]
    # Their hashes are equal; keys are asked, since hashes of different stretches may be equal, too.
    starts = [s for s in free if (keys[s : s + repeat.length] == first).all()]
    if len(starts) < 2:
        return Repeat(repeat.length, tuple(starts))
    at = np.array(starts)
    length = repeat.length
    while at[-1] + length < len(keys) and (at[:-1] + length < at[1:]).all() and _alike(at + length, keys, covered):
        length += 1
    while at[0] > 0 and (at[1:] - 1 >= at[:-1] + length).all() and _alike(at - 1, keys, covered):
        at, length = at - 1, length + 1
    return Repeat(length, tuple(at.tolist()))


def _alike(places: np.ndarray, keys: np.ndarray, covered: np.ndarray) -> bool:
    return not covered[places].any() and bool((keys[places] == keys[places[0]]).all())


def _turned(repeat: Repeat, keys: np.ndarray, covered: np.ndarray, alive: Sequence[int]) -> Repeat:
    """Of stretches without gaps, the ones that begin further on, at the border that the fewest values cross.

    Where the row does not go on beyond its last stretch, turning costs one of them; fewer than six are left alone.
    """
    length, starts = repeat.length, np.array(repeat.starts)
    if len(starts) < 2 or (np.diff(starts) != length).any():
        return repeat
    end = free = int(starts[-1]) + length
    while free < len(keys) and free < end + length - 1 and not covered[free] and keys[free] == keys[free - length]:
        free += 1
    limit = length - 1 if len(starts) >= 6 else free - end
    borders = np.asarray(alive)
    # Values that are kept for later make the counts rise from stretch to stretch: that trend is no one's choice.
    slope = (borders[starts[-1]] - borders[starts[0]]) / max(1, starts[-1] - starts[0])
    # A turn that gives up a stretch has to save more than half a value a border: equal borders turn nothing.
    costs = [
        float(borders[starts[:-1] + d].mean() - slope * d + (0.5 if d > free - end else 0)) for d in range(limit + 1)
    ]
    turn = int(np.argmin(costs))
    kept = starts if turn <= free - end else starts[:-1]
    return Repeat(length, tuple((kept + turn).tolist()))


def _checked(repeat: Repeat, references: Sequence[tuple[tuple[int, int], ...]]) -> Repeat | None:
    """The largest set of the stretches that agree in what points where inside."""
    classes: dict[tuple[object, ...], list[int]] = {}
    for start in repeat.starts:
        inside = tuple(
            tuple((p - start, which) if p >= start else None for p, which in references[start + i])
            for i in range(repeat.length)
        )
        classes.setdefault(inside, []).append(start)
    if not classes:
        return None
    starts = max(classes.values(), key=len)
    return Repeat(repeat.length, tuple(starts)) if len(starts) > 1 else None


def alive_before(ranges: Iterable[tuple[int, int]], count: int) -> list[int]:
    """How many values cross the border before each of `count` places, and the one behind them.

    `ranges`: where each value is made, and where it is used last.

    >>> alive_before([(0, 2), (1, 2), (2, 2)], 3)
    [0, 1, 2, 0]
    """
    change = np.zeros(count + 2, np.int64)
    for made, last in ranges:
        change[made + 1] += 1
        change[last + 1] -= 1
    return np.cumsum(change)[: count + 1].tolist()


# ---- a long stretch that repeats with a period: layer after layer


class Stretch(NamedTuple):
    """Numbers from `start` on, each equal to the one `period` places behind it."""

    start: int
    period: int
    length: int
    """The last repeat may be a part of one."""

    @property
    def count(self) -> int:
        """Of whole repeats."""
        return self.length // self.period

    @property
    def size(self) -> int:
        """How many numbers whole repeats have."""
        return self.count * self.period


def first_stretch(keys: Ints, free: Bools, least: int) -> Stretch | None:
    """The first long one, none of its numbers taken, of those with `least` repeats or more.

    What comes first (the forward layers) is what the others are made of.

    >>> first_stretch(np.arange(400) % 40, np.ones(400, bool), 8)
    Stretch(start=0, period=40, length=400)
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
        yield Stretch(int(edges[number]) + 1, period, int(lengths[number]) + period)


def between_layers(stretch: Stretch, users: Ints, operands: Ints) -> Stretch:
    """The stretch cut where the fewest values go from one repeat to the next; `users[n]` reads `operands[n]`.

    >>> places = np.arange(1, 400)  # each reads the one before it, and some one that is 20 places off
    >>> far = places[30::40]
    >>> between_layers(Stretch(0, 40, 360), np.append(places, far + 20), np.append(places - 1, far))
    Stretch(start=12, period=40, length=348)
    """
    start, period, length = stretch
    # One in the middle, which has its like on both sides.
    begin = start + stretch.count // 2 * period
    # What is read a period later or more, as by the backward pass, adds to every border alike.
    near = (operands >= begin - period) & (operands < begin + period) & (users - operands < period)
    last_user = np.zeros(3 * period, np.int64)
    np.maximum.at(last_user, operands[near] - begin + period, users[near] - begin + period)
    alive = alive_before(((n, last) for n, last in enumerate(last_user.tolist()) if last), 3 * period)
    offset = int(np.argmin(alive[period : 2 * period]))
    return Stretch(start + offset, period, length - offset)


def _periods(keys: Ints, free: Bools) -> list[int]:
    """The most frequent distances from a window of numbers to where it stands again, short ones first."""
    if len(keys) < 2 * _WINDOW:
        return []
    hashes = _Windows(keys).hashes(_WINDOW)
    places = np.flatnonzero(free[: len(hashes)])
    # Stable, so that of equal windows each stands behind the one before it in the text.
    order = places[np.argsort(hashes[places], kind="stable")]
    same = hashes[order[1:]] == hashes[order[:-1]]
    distances, counts = np.unique((order[1:] - order[:-1])[same], return_counts=True)
    return sorted(distances[np.argsort(-counts, kind="stable")[:_PERIODS]].tolist())
