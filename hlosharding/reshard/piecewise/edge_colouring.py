"""Messages into rounds: in each round a device sends at most one and receives at most one.

Floor: reshard.  Pairs of numbers only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

Table = defaultdict[int, dict[int, int]]
"""device -> colour -> message"""


def edge_colouring(senders: Sequence[int], receivers: Sequence[int]) -> list[list[int]]:
    """Rounds of message numbers; message i goes from senders[i] to receivers[i].  As few rounds as the busiest needs.

    A bipartite graph has such a colouring (König): messages get colours one by one, and where no colour is free at both
    ends, two colours swap along the alternating path that starts at the receiver.

    >>> len(edge_colouring([0, 0, 0, 1, 1, 1, 2, 2, 2], [3, 4, 5, 3, 4, 5, 3, 4, 5]))
    3
    """
    sends: Table = defaultdict(dict)
    receives: Table = defaultdict(dict)
    for message, (sender, receiver) in enumerate(zip(senders, receivers, strict=True)):
        out, into = sends[sender], receives[receiver]
        colour = _free(out)
        if colour in into:
            other = _free(into)
            if other in out:
                _swap_along(sends, receives, senders, receivers, receiver, colour, other)
            else:
                colour = other
        out[colour] = into[colour] = message
    rounds: dict[int, list[int]] = defaultdict(list)
    for colours in receives.values():
        for colour, message in colours.items():
            rounds[colour].append(message)
    return [rounds[colour] for colour in sorted(rounds)]


def _free(colours: dict[int, int]) -> int:
    """The least colour not used."""
    colour = 0
    while colour in colours:
        colour += 1
    return colour


def _swap_along(
    sends: Table,
    receives: Table,
    senders: Sequence[int],
    receivers: Sequence[int],
    receiver: int,
    colour: int,
    other: int,
) -> None:
    """Free `colour` at a receiver where `other` is free.  The path cannot end at a sender where `colour` is free."""
    path: list[tuple[int, int, int]] = []
    at, side, now, then = receiver, receives, colour, other
    while now in side[at]:
        message = side[at][now]
        path.append((message, now, then))
        at, side = (senders[message], sends) if side is receives else (receivers[message], receives)
        now, then = then, now
    for message, old, _ in path:
        del sends[senders[message]][old], receives[receivers[message]][old]
    for message, _, new in path:
        sends[senders[message]][new] = receives[receivers[message]][new] = message
