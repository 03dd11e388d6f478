"""How pieces share rounds, and what that costs: each round sends windows of one size, so unlike pieces need padding.

Floor: reshard.

Pieces of unlike sizes get rounds of their own, or share them at the price of some padding.  Where many devices want the
same tile, one of them may get it and pass it on, doubling those who have it each round.  `groupings` prices all of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hlosharding.ir import Shape
from hlosharding.reshard.layout import Dims, Table
from hlosharding.reshard.piecewise.piece_moves import PieceMoves
from hlosharding.reshard.steps import Pairs, round_seconds

TOLERANCES = (0.0, 0.05, 0.3, 1.0, math.inf)
"""How much larger than its smallest piece the window of a round may be, as a share of the piece."""
_SPARE_ROUNDS = 4
"""Times the rounds that the busiest device needs.  With half of it 50 plans move more bytes (at most 1.39), with double
12 move fewer (at best 0.92) in more rounds; under "time" no plan differs."""

Groups = dict[Dims, list[int]]
"""window -> pieces"""


class PieceGroup(NamedTuple):
    """Pieces that travel in windows of one size."""

    window: Dims
    members: tuple[int, ...]
    turns: int
    """Rounds: as many as the busiest device has of these pieces."""
    pairs: Pairs
    """(sender, receiver) of each piece."""
    kernels: int
    """That cut and place a window."""


class Grouping(NamedTuple):
    """Pieces grouped by the window in which they travel, and what that costs."""

    groups: tuple[PieceGroup, ...]
    passed_on: tuple[Pairs, ...]
    """Rounds in which whole target tiles are passed on."""
    rounds: int
    moves: PieceMoves
    mean_bytes: float = math.nan
    """Not priced yet: of a block of elements all else is as of one."""
    seconds: float = math.nan

    @property
    def is_padded(self) -> bool:
        """With padding that comes along?"""
        return self.moves.is_padded

    def price(self, shape: Shape, block: Dims) -> Grouping:
        """With its price, for an array of type and dims of `shape` in such blocks."""
        unit, moves = math.prod(block), self.moves
        mean, seconds = 0.0, 0.0
        for group in self.groups:
            nbytes = _nbytes(shape, unit * math.prod(group.window))
            mean += nbytes * len(group.members) / moves.num_devices
            seconds += group.turns * round_seconds(nbytes, group.pairs, moves.machine, kernels=group.kernels)
        tile = _nbytes(shape, unit * math.prod(moves.target.tile))
        for pairs in self.passed_on:
            mean += tile * len(pairs) / moves.num_devices
            seconds += round_seconds(tile, pairs, moves.machine, kernels=0)
        return self._replace(mean_bytes=mean, seconds=seconds)


def _nbytes(shape: Shape, elements: int) -> int:
    return -(-elements * shape.bits // 8)


def groupings(moves: PieceMoves, shape: Shape, block: Dims = ()) -> Iterator[Grouping]:
    """From no padding to fewest rounds; those with far more rounds than needed are left out.

    With `block` each element of the moves stands for so many along each dim.

    Six devices, 2 x 3 tiles to 3 x 2: pieces of 1 x 1, 1 x 2 and 2 x 1 elements, each size in rounds of its own, or all
    in windows of 2 x 1 and 1 x 2, or of 2 x 2.

    >>> from hlosharding.cost import machines
    >>> from hlosharding.reshard.layout import layout_of
    >>> from hlosharding.reshard.piecewise.piece_moves import moves_between
    >>> from hlosharding.sharding import HloSharding
    >>> a, b = HloSharding.parse("{devices=[2,3]<=[6]}"), HloSharding.parse("{devices=[3,2]<=[6]}")
    >>> moves = moves_between(layout_of(a, (6, 6), 6), layout_of(b, (6, 6), 6), machines.h100(6))
    >>> [(found.rounds, round(found.mean_bytes, 3)) for found in groupings(moves, Shape.parse("u8[6,6]"))]
    [(6, 4.0), (4, 6.0)]
    """
    for grouping in _unpriced(moves):
        yield grouping.price(shape, block)


# By identity, which holds as long as `plans._moves_of_blocks` remembers the moves.
@lru_cache(maxsize=512)
def _unpriced(moves: PieceMoves) -> tuple[Grouping, ...]:
    found = list(_by_tolerance(moves, np.flatnonzero(moves.travels), ()))
    if not moves.is_padded and (moves.padded_sizes != moves.sizes).any():
        return (*found, *_unpriced(moves.with_padding()))
    first, passed_on = _first_copies(moves)
    if passed_on:
        fetched = moves.travels & np.isin(moves.receivers, first)
        found += _by_tolerance(moves, np.flatnonzero(fetched), passed_on)
    return tuple(found)


def _by_tolerance(moves: PieceMoves, pieces: Table, passed_on: tuple[Pairs, ...]) -> Iterator[Grouping]:
    """One for each tolerance that changes the number of rounds."""
    most = _SPARE_ROUNDS * (moves.busiest(pieces) + 1)
    by_steps = _by_steps_and_size(moves, pieces)
    is_alike = all(len(by_size) == 1 for by_size in by_steps)
    seen: set[int] = set()
    for tolerance in TOLERANCES[:1] if is_alike else TOLERANCES:
        groups: list[tuple[Dims, list[int]]] = []
        for by_size in by_steps:
            alike = _alike(by_size, tolerance, most)
            # A larger tolerance makes fewer.
            if alike is None:
                break
            groups += alike
        else:
            found = _grouping(moves, groups, passed_on)
            # Where it saves no round a larger tolerance only pads more.
            if found.rounds <= most + len(passed_on) and found.rounds not in seen:
                seen.add(found.rounds)
                yield found


def _by_steps_and_size(moves: PieceMoves, pieces: Table) -> list[Groups]:
    """Pieces by their sizes; those with other steps between their elements apart, as no round holds both."""
    found: dict[tuple[Dims, Dims], Groups] = defaultdict(lambda: defaultdict(list))
    for number in sorted(set(moves.region[pieces].tolist())):
        mine = pieces[moves.region[pieces] == number]
        by_size = found[moves.regions[number].steps]
        for piece, size in zip(mine.tolist(), map(tuple, moves.sizes[mine].tolist()), strict=True):
            by_size[size].append(piece)
    return list(found.values())


def _alike(by_size: Groups, tolerance: float, most: int) -> list[tuple[Dims, list[int]]] | None:
    """Pieces grouped so that a group's window is at most 1 + tolerance times its smallest; None: too many groups."""
    if tolerance == 0.0:
        return list(by_size.items()) if len(by_size) <= most else None
    groups: list[tuple[Dims, list[int]]] = []
    # The largest first: then what comes is the smallest of a group, which its window is held against.
    for size in sorted(by_size, key=lambda s: (-math.prod(s), s)):
        for number, (window, members) in enumerate(groups):
            joined = tuple(map(max, window, size))
            if math.prod(joined) <= (1 + tolerance) * math.prod(size):
                groups[number] = (joined, members + by_size[size])
                break
        else:
            groups.append((size, by_size[size]))
        if len(groups) > most:
            return None
    return groups


def _grouping(moves: PieceMoves, groups: list[tuple[Dims, list[int]]], passed_on: tuple[Pairs, ...]) -> Grouping:
    found = tuple(_group(moves, window, members) for window, members in groups)
    rounds = len(passed_on) + sum(group.turns for group in found)
    return Grouping(found, passed_on, rounds, moves)


def _group(moves: PieceMoves, window: Dims, members: list[int]) -> PieceGroup:
    pairs = tuple(zip(moves.senders[members].tolist(), moves.receivers[members].tolist(), strict=True))
    whole = moves.tiles[moves.regions[moves.region[members[0]]].operand]
    kernels = (window != whole) + (window != moves.target.tile)
    return PieceGroup(window, tuple(members), moves.busiest(members), pairs, kernels)


# Tiles that many devices want


def _first_copies(moves: PieceMoves) -> tuple[list[int], tuple[Pairs, ...]]:
    """(devices that fetch their tile from its holders, rounds in which they pass it on).

    Of the devices that want one tile those that have all of it start, or else the one that lacks least.  No rounds
    where no tile is lacking on two devices.
    """
    lacking = _lacking(moves)
    if np.bincount(_target_tiles(moves)[lacking > 0], minlength=1).max() < 2:
        return [], ()
    copies = _copies(moves)
    first: list[int] = []
    rounds: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for devices in copies:
        have = [d for d in devices if not lacking[d]] or [min(devices, key=lambda d: int(lacking[d]))]
        first += have
        for turn, pairs in enumerate(_doubling(have, [d for d in devices if d not in have])):
            rounds[turn] += pairs
    return first, tuple(tuple(sorted(pairs)) for pairs in rounds.values())


def _lacking(moves: PieceMoves) -> Table:
    """[device]: elements that it must receive."""
    found = np.zeros(moves.num_devices, np.int64)
    np.add.at(found, moves.receivers[moves.travels], moves.sizes[moves.travels].prod(axis=1))
    return found


def _target_tiles(moves: PieceMoves) -> Table:
    """[device]: the number of its target tile; other manual groups have others."""
    numbers = dict[int, int]()
    return np.array([numbers.setdefault(code, len(numbers)) for code in moves.target.tile_codes.tolist()], np.int64)


def _copies(moves: PieceMoves) -> list[list[int]]:
    """Devices that want the same target tile."""
    found: dict[int, list[int]] = defaultdict(list)
    tiles = _target_tiles(moves).tolist()
    for device in np.flatnonzero(moves.target.has_data()).tolist():
        found[tiles[device]].append(device)
    return list(found.values())


def _doubling(have: list[int], lack: list[int]) -> Iterator[list[tuple[int, int]]]:
    """Rounds in which everyone who has it passes it on.

    >>> list(_doubling([0], [1, 2, 3]))
    [[(0, 1)], [(0, 2), (1, 3)]]
    """
    while lack:
        pairs = list(zip(have, lack, strict=False))
        yield pairs
        have, lack = have + lack[: len(pairs)], lack[len(pairs) :]
