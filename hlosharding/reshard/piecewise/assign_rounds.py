"""From pieces and a grouping to the step that sends them: which pieces share which round.

Floor: reshard.

Senders and receivers make a bipartite graph; by König's theorem as many rounds suffice as its busiest device has
pieces (`edge_colouring`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from hlosharding.reshard.layout import Dims, Table
from hlosharding.reshard.piecewise.groupings import Grouping
from hlosharding.reshard.piecewise.piece_moves import PieceMoves
from hlosharding.reshard.steps import RESULT, Pairs, Pieces, Round

Turn = list[int]
"""Pieces of one round."""


def pieces_in_rounds(moves: PieceMoves, grouping: Grouping) -> Pieces:
    """The step: pieces that stay and pieces that travel, then whole tiles that are passed on."""
    # Not the moves of the grouping: those may count blocks of elements.
    if grouping.is_padded and not moves.is_padded:
        moves = moves.with_padding()
    staying = _turns(moves, _staying(moves, grouping))
    travelling = _turns(moves, (list(group.members) for group in grouping.groups))
    turns = _together(moves, staying, travelling)
    rounds = [_round(moves, turn) for turn in turns] + [_whole_tiles(moves, pairs) for pairs in grouping.passed_on]
    return Pieces(moves.target.tile, tuple(rounds))


def _staying(moves: PieceMoves, grouping: Grouping) -> list[Turn]:
    """Pieces that stay where they are, by region; none of tiles that come whole, later."""
    stays = ~moves.travels
    if grouping.passed_on:
        later = {target for pairs in grouping.passed_on for _, target in pairs}
        stays &= ~np.isin(moves.receivers, list(later))
    return [np.flatnonzero(stays & (moves.region == n)).tolist() for n in sorted(set(moves.region[stays].tolist()))]


def _turns(moves: PieceMoves, groups: Iterable[list[int]]) -> list[Turn]:
    """The rounds of each group: a device sends and receives one piece at most."""
    return [
        [members[i] for i in turn]
        for members in groups
        for turn in edge_colouring(moves.senders[members].tolist(), moves.receivers[members].tolist())
    ]


def _together(moves: PieceMoves, staying: list[Turn], travelling: list[Turn]) -> list[Turn]:
    """Pieces that stay join a round with the same window in which their devices have nothing to do."""
    alone: list[Turn] = []
    for turn in staying:
        # The turn that is joined grows in place: so those that stay next see who is busy by now.
        joined = next((other for other in travelling if _may_join(moves, turn, other)), None)
        if joined is None:
            alone.append(turn)
        else:
            joined += turn
    return alone + travelling


def _may_join(moves: PieceMoves, staying: Turn, turn: Turn) -> bool:
    window, other = (moves.sizes[pieces].max(axis=0).tolist() for pieces in (staying, turn))
    busy = np.concatenate([moves.senders[turn], moves.receivers[turn]])
    is_same = moves.region[staying[0]] == moves.region[turn[0]] and window == other
    return bool(is_same and not np.isin(moves.receivers[staying], busy).any())


def _round(moves: PieceMoves, pieces: Turn) -> Round:
    senders, receivers, sizes = (table[pieces] for table in (moves.senders, moves.receivers, moves.sizes))
    window = sizes.max(axis=0)
    pairs: Pairs = tuple(sorted(zip(senders.tolist(), receivers.tolist(), strict=True)))
    operands = _operands(moves, pieces)
    return Round(
        tuple(window.tolist()),
        _of_devices(moves, senders, moves.read[pieces]),
        _of_devices(moves, receivers, moves.write[pieces]),
        pairs,
        _of_devices(moves, receivers, sizes) if (sizes != window).any() else (),
        tuple(operands.tolist()) if operands.any() else (),
        *moves.regions[moves.region[pieces].min()].steps,
    )


def _of_devices(moves: PieceMoves, devices: Table, rows: Table) -> tuple[Dims, ...]:
    """[dim][device]: from rows of some devices; 0 of the others."""
    found = np.zeros((rows.shape[1], moves.num_devices), np.int64)
    found[:, devices] = rows.T
    return tuple(map(tuple, found.tolist()))


def _operands(moves: PieceMoves, pieces: Turn) -> Table:
    """[device]: which variant of which operand it cuts from."""
    found, numbers = np.zeros(moves.num_devices, np.int64), moves.region[pieces]
    for number in sorted(set(numbers.tolist())):
        region = moves.regions[number]
        found[moves.senders[pieces][numbers == number]] = moves.variants.index((region.operand, region.turned))
    return found


def _whole_tiles(moves: PieceMoves, pairs: Pairs) -> Round:
    start = ((0,) * moves.num_devices,) * len(moves.target.dims)
    return Round(moves.target.tile, start, start, pairs, operands=(RESULT,) * moves.num_devices)


# ---- messages into rounds: in each round a device sends at most one and receives at most one
#
# Pairs of numbers only.

_MessageOfRound = defaultdict[int, dict[int, int]]
"""device -> round -> message"""


def edge_colouring(senders: Sequence[int], receivers: Sequence[int]) -> list[list[int]]:
    """Rounds of message numbers; message i goes from senders[i] to receivers[i].  As few rounds as the busiest needs.

    Messages are the edges of a bipartite graph, rounds their colours; König: as many colours suffice as the busiest
    device has edges.

    >>> len(edge_colouring([0, 0, 0, 1, 1, 1, 2, 2, 2], [3, 4, 5, 3, 4, 5, 3, 4, 5]))
    3
    """
    if len(set(senders)) == len(set(receivers)) == len(senders):
        return [list(range(len(senders)))] if senders else []
    colouring = _Colouring(senders, receivers)
    for message in range(len(senders)):
        colouring.place(message)
    rounds: dict[int, list[int]] = defaultdict(list)
    for messages in colouring.receives.values():
        for number, message in messages.items():
            rounds[number].append(message)
    return [rounds[number] for number in sorted(rounds)]


class _Colouring:
    """Messages get rounds one by one; those placed before may change theirs."""

    def __init__(self, senders: Sequence[int], receivers: Sequence[int]) -> None:
        self.senders, self.receivers = senders, receivers
        self.sends: _MessageOfRound = defaultdict(dict)
        self.receives: _MessageOfRound = defaultdict(dict)

    def place(self, message: int) -> None:
        """Where no round is free at both ends, two rounds swap along a path, so that the sender's free one is."""
        out, into = self.sends[self.senders[message]], self.receives[self.receivers[message]]
        chosen = _first_free(out)
        if chosen in into:
            other = _first_free(into)
            if other in out:
                self._swap(self.receivers[message], chosen, other)
            else:
                chosen = other
        out[chosen] = into[chosen] = message

    def _swap(self, receiver: int, chosen: int, other: int) -> None:
        """Free round `chosen` at a receiver where `other` is free.

        The receiver's message of `chosen` goes to `other`; if its sender is busy then, that message goes to `chosen`;
        and so on from receiver to sender and back.  The path cannot end at a sender where `chosen` is free.
        """
        path: list[tuple[int, int, int]] = []
        at, side, now, then = receiver, self.receives, chosen, other
        while now in side[at]:
            message = side[at][now]
            path.append((message, now, then))
            if side is self.receives:
                at, side = self.senders[message], self.sends
            else:
                at, side = self.receivers[message], self.receives
            now, then = then, now
        # All leave before any enters: the new round of one is the old round of the next at the device that they share.
        for message, old, _ in path:
            del self.sends[self.senders[message]][old], self.receives[self.receivers[message]][old]
        for message, _, new in path:
            self.sends[self.senders[message]][new] = self.receives[self.receivers[message]][new] = message


def _first_free(rounds: dict[int, int]) -> int:
    number = 0
    while number in rounds:
        number += 1
    return number
