"""By which way each unit of a demand goes: from a holder to all that want it, through those that have it by then.

Floor: transfer.  Knows demands and links; nothing of arrays.

Units go one after the other, each from link to link that it makes the least busy (a high power of how long a link is
busy says what more of it costs).  Then each is taken out and sent anew, as long as that helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hlosharding.transfer.links import IN, OUT, DeviceLinks
from hlosharding.transfer.pieces import Demand

UNITS = 64, 192
"""Units for which the busiest link has time: finer ones lie more evenly, and are more messages; tried in turn."""
MOST_PASSES = 8
NEAR_ENOUGH = 1.01
"""Times the bound: then nothing else is tried."""
_POWER = 24


class Unit(NamedTuple):
    """Some bytes of a demand, which travel together."""

    demand: int
    start: int
    end: int


class Hop(NamedTuple):
    """From one device to the next."""

    source: int
    target: int
    links: list[int]
    """The way out of the one and the way into the other."""


class Routes(NamedTuple):
    """The hops of every unit, in an order in which each starts where the unit is by then."""

    units: list[Unit]
    hops: list[list[Hop]]
    busy: np.ndarray
    """[link]: seconds (bytes without a machine)."""

    @property
    def busiest(self) -> float:
        """How long the busiest link is busy."""
        return float(self.busy.max(initial=0.0))


def routes_of(demands: Sequence[Demand], links: DeviceLinks, bound: float) -> Routes:
    """The best routes found."""
    best = Routes([], [], np.zeros(4 * links.num_devices))
    tried = (found for units in UNITS for found in _passes(demands, links, bound, units)) if demands else ()
    for found in tried:
        best = found if not best.units or found.busiest < best.busiest else best
        if best.busiest <= NEAR_ENOUGH * bound:
            break
    return best


def _passes(demands: Sequence[Demand], links: DeviceLinks, bound: float, count: int) -> Iterator[Routes]:
    """Routes of all units, again and again: each is sent anew after its way is forgotten."""
    ways = [_Ways(demand, links, bound) for demand in demands]
    units = [
        unit
        for number, (demand, way) in enumerate(zip(demands, ways, strict=True))
        for unit in _units(number, demand, bound * way.slowest / count)
    ]
    hops: list[list[Hop]] = [[] for _ in units]
    busy = np.zeros(4 * links.num_devices)
    for _ in range(MOST_PASSES):
        for number, unit in enumerate(units):
            for hop in hops[number]:
                busy[hop.links] -= (unit.end - unit.start) / links.rate[hop.links]
            hops[number] = ways[unit.demand].tree(busy, unit.end - unit.start)
        # Copies, for the next pass changes both, and may be no better.
        yield Routes(units, list(hops), busy.copy())


def _units(number: int, demand: Demand, most: float) -> Iterator[Unit]:
    """A demand in equal units of at most so many bytes, cut between rows."""
    count = max(1, int(np.ceil(demand.nbytes / most)))
    # A set: where rows are few, edges fall together.
    edges = sorted({demand.row_edge(demand.nbytes * n / count) for n in range(count + 1)})
    return (Unit(number, *both) for both in pairwise(edges))


class _Ways:
    """The links from each member of a demand to each wanter."""

    def __init__(self, demand: Demand, links: DeviceLinks, bound: float) -> None:
        self.rates, self.bound, first = links.rate, bound, len(demand.holders)
        self.members, self.wanters = np.array((*demand.holders, *demand.wanters)), np.array(demand.wanters)
        self.level = (links.node[self.members][:, None] != links.node[self.wanters][None]).astype(np.int64)
        ways = 4 * self.members[:, None] + 2 * self.level + OUT, 4 * self.wanters[None] + 2 * self.level + IN
        self.links = np.stack(ways, axis=2)
        self.slowest = float(self.rates[self.links].min())
        levels = np.where(self.members[:, None] == self.wanters, -1, self.level)
        self.forwards = np.stack([(levels[first:] == n).any(axis=1) for n in (0, 1)], axis=1)
        """[wanter, level]: is there anybody to whom it may send?"""
        self.receives = np.stack([(levels == n).any(axis=0) for n in (0, 1)], axis=1)
        """[wanter, level]: is there anybody from whom it may receive?"""

    def tree(self, busy: np.ndarray, nbytes: int) -> list[Hop]:
        """Hops by which all wanters get so many bytes; `busy` is told of them."""
        hops: list[Hop] = []
        first = len(self.members) - len(self.wanters)
        has = np.arange(len(self.members)) < first
        for _ in self.wanters:
            out, into = (self._prices(busy, nbytes, devices) for devices in (self.members, self.wanters))
            price = np.where(self.level, out[:, 1, OUT, None] + into[:, 1, IN], out[:, 0, OUT, None] + into[:, 0, IN])
            # All have to be reached; so first those by which others are reached cheaply.
            price += _least(into[:, :, OUT], self.forwards) - _least(into[:, :, IN], self.receives)
            price[~has] = np.inf
            price[:, has[first:]] = np.inf
            row, column = divmod(int(price.argmin()), len(self.wanters))
            has[first + column] = True
            hops.append(Hop(int(self.members[row]), int(self.wanters[column]), self.links[row, column].tolist()))
            busy[hops[-1].links] += nbytes / self.rates[hops[-1].links]
        return hops

    def _prices(self, busy: np.ndarray, nbytes: int, devices: np.ndarray) -> np.ndarray:
        """[device, level, way]: of so many bytes more."""
        # In units of the bound, for the power of so many bytes may be more than a double holds.
        before, added = (each.reshape(-1, 2, 2)[devices] / self.bound for each in (busy, nbytes / self.rates))
        return (before + added) ** _POWER - before**_POWER


def _least(prices: np.ndarray, possible: np.ndarray) -> np.ndarray:
    """[wanter]: the cheaper level of those that it may use; 0 where there is none."""
    return np.where(possible.any(axis=1), np.where(possible, prices, np.inf).min(axis=1), 0.0)
