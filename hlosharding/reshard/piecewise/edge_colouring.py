"""Messages into rounds: in each round a device sends at most one and receives at most one.

Floor: reshard.  Pairs of numbers only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

Table = defaultdict[int, dict[int, int]]
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
        self.sends: Table = defaultdict(dict)
        self.receives: Table = defaultdict(dict)

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
        for message, old, _ in path:
            del self.sends[self.senders[message]][old], self.receives[self.receivers[message]][old]
        for message, _, new in path:
            self.sends[self.senders[message]][new] = self.receives[self.receivers[message]][new] = message


def _first_free(rounds: dict[int, int]) -> int:
    number = 0
    while number in rounds:
        number += 1
    return number
