"""When each hop is made: in rounds, in none of which a link has more to carry than its largest unit.

Floor: transfer.  Knows routes and links; nothing of arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hlosharding.transfer.links import IN, OUT, Links
from hlosharding.transfer.routes import Hop, Routes, Unit

_FULL = 1.0 + 1e-9


class Send(NamedTuple):
    """A unit on its way from one device to another."""

    unit: Unit
    hop: Hop

    @property
    def nbytes(self) -> int:
        """Of the unit."""
        return self.unit.end - self.unit.start


def rounds_of(routes: Routes, links: Links) -> tuple[tuple[Send, ...], ...]:
    """All sends: each in the first round in which its unit is there and both its links have room."""
    sends = _in_order(routes)
    slot = max((send.nbytes / links.rate[_links(send.hop, links)].min() for send, _ in sends), default=1.0)
    used = np.zeros((4 * links.num_devices, 64))
    there: dict[tuple[Unit, int], int] = {}
    rounds: list[list[Send]] = []
    for send, _ in sends:
        pair = _links(send.hop, links)
        need = send.nbytes / links.rate[pair] / slot
        start = there.get((send.unit, send.hop.source), 0)
        room = (used[pair, start:] + need[:, None] <= _FULL).all(axis=0)
        number = start + (int(np.argmax(room)) if np.any(room) else used.shape[1] - start)
        if number >= used.shape[1]:
            used = np.pad(used, ((0, 0), (0, used.shape[1])))
        used[pair, number] += need
        there[send.unit, send.hop.target] = number + 1
        rounds += [[] for _ in range(number + 1 - len(rounds))]
        rounds[number].append(send)
    return tuple(map(tuple, rounds))


def _in_order(routes: Routes) -> list[tuple[Send, int]]:
    """With the number of hops before it: what others wait for goes first."""
    found: list[tuple[Send, int]] = []
    for unit, hops in zip(routes.units, routes.hops, strict=True):
        depth: dict[int, int] = {}
        for hop in hops:
            depth[hop.target] = depth.get(hop.source, 0) + 1
            found.append((Send(unit, hop), depth[hop.target]))
    return sorted(found, key=lambda each: each[1])


def seconds_of(sends: tuple[Send, ...], links: Links) -> float:
    """Of one round on a machine: until its busiest link is done."""
    busy = dict[int, float]()
    for send in sends:
        for link in _links(send.hop, links):
            busy[link] = busy.get(link, links.latency(link)) + send.nbytes / float(links.rate[link])
    return max(busy.values(), default=0.0)


def _links(hop: Hop, links: Links) -> list[int]:
    level = int(links.node[hop.source] != links.node[hop.target])
    return [links.number(hop.source, level, OUT), links.number(hop.target, level, IN)]
