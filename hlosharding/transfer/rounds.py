"""When each hop is made: in rounds, in none of which a link has more to carry than its largest unit.

Floor: transfer.  Knows routes and links; nothing of arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hlosharding.transfer.links import DeviceLinks
from hlosharding.transfer.routes import Hop, Routes, Unit

# Of one: shares of a round that add up to it may be more by rounding.
_FULL = 1.0 + 1e-9


class PieceSend(NamedTuple):
    """A unit on its way from one device to another."""

    unit: Unit
    hop: Hop

    @property
    def nbytes(self) -> int:
        """Of the unit."""
        return self.unit.end - self.unit.start


def rounds_of(routes: Routes, links: DeviceLinks) -> tuple[tuple[PieceSend, ...], ...]:
    """All sends: each in the first round in which its unit is there and both its links have room."""
    sends = [send for _, send in sorted(_sends(routes), key=lambda each: each[0])]
    slot = max((send.nbytes / links.rate[send.hop.links].min() for send in sends), default=1.0)
    used = np.zeros((4 * links.num_devices, 64))
    there: dict[tuple[Unit, int], int] = {}
    rounds: dict[int, list[PieceSend]] = defaultdict(list)
    for send in sends:
        need = send.nbytes / links.rate[send.hop.links] / slot
        start = there.get((send.unit, send.hop.source), 0)
        if start + 1 >= used.shape[1] or not _room(used, send, need)[start:].any():
            # Doubled, so that it is copied a few times only, however many rounds there are.
            used = np.pad(used, ((0, 0), (0, used.shape[1])))
        number = start + int(_room(used, send, need)[start:].argmax())
        used[send.hop.links, number] += need
        there[send.unit, send.hop.target] = number + 1
        rounds[number].append(send)
    return tuple(tuple(rounds[number]) for number in sorted(rounds))


def _room(used: np.ndarray, send: PieceSend, need: np.ndarray) -> np.ndarray:
    """[round]: have both links of a send room?"""
    return np.logical_and(*(used[send.hop.links] + need[:, None] <= _FULL))


def _sends(routes: Routes) -> Iterator[tuple[int, PieceSend]]:
    """With the number of hops before each: what others wait for goes first."""
    for unit, hops in zip(routes.units, routes.hops, strict=True):
        depth = defaultdict[int, int](int)
        for hop in hops:
            depth[hop.target] = depth[hop.source] + 1
            yield depth[hop.source], PieceSend(unit, hop)


def seconds_of(sends: Sequence[PieceSend], links: DeviceLinks) -> float:
    """Of one round on a machine: until its busiest link is done."""
    busy = dict[int, float]()
    for send in sends:
        for link in send.hop.links:
            busy[link] = busy.get(link, links.latency(link)) + send.nbytes / float(links.rate[link])
    return max(busy.values())
