"""By which way each unit of a demand goes: from a holder to all that want it, through those that have it by then.

Floor: transfer.  Knows demands and links; nothing of arrays.

Units go one after the other, each from link to link that it makes the least busy (a high power of how long a link is
busy says what more of it costs).  Then each is taken out and sent anew, as long as that helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hlosharding.transfer.links import IN, OUT, Links
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


@dataclass(frozen=True, eq=False)
class Routes:
    """The hops of every unit, in an order in which each starts where the unit is by then."""

    units: list[Unit]
    hops: list[list[Hop]]
    busy: np.ndarray
    """[link]: seconds (bytes without a machine)."""

    @property
    def busiest(self) -> float:
        """How long the busiest link is busy."""
        return float(self.busy.max(initial=0.0))


def routes_of(demands: Sequence[Demand], links: Links, bound: float) -> Routes:
    """The best routes found."""
    best: Routes | None = None
    for units in UNITS:
        found = _Routing(demands, links, bound, units).run()
        if best is None or found.busiest < best.busiest:
            best = found
        if best.busiest <= NEAR_ENOUGH * bound:
            break
    assert best is not None
    return best


def _units(number: int, demand: Demand, seconds: float) -> Iterator[Unit]:
    """A demand in equal units, each of at most so many seconds on a link of rate 1, cut between rows."""
    count = max(1, int(np.ceil(demand.nbytes / seconds)))
    edges = sorted({demand.row_edge(demand.nbytes * n / count) for n in range(count + 1)})
    for start, end in pairwise(edges):
        yield Unit(number, start, end)


class _Routing:
    def __init__(self, demands: Sequence[Demand], links: Links, bound: float, units: int) -> None:
        self.links, self.bound = links, bound
        self.busy = np.zeros(4 * links.num_devices)
        self.ways = [_Ways(demand, links) for demand in demands]
        self.units = [
            unit
            for number, (demand, way) in enumerate(zip(demands, self.ways, strict=True))
            for unit in _units(number, demand, bound * way.slowest / units)
        ]
        self.hops: list[list[Hop]] = [[] for _ in self.units]

    def run(self) -> Routes:
        best: Routes | None = None
        for _ in range(MOST_PASSES):
            for number in range(len(self.units)):
                self._send(number)
            found = Routes(self.units, list(self.hops), self.busy.copy())
            if best is None or found.busiest < best.busiest:
                best = found
            if best.busiest <= NEAR_ENOUGH * self.bound:
                break
        assert best is not None
        return best

    def _send(self, number: int) -> None:
        """A unit by a way of its own, after that which it had is forgotten."""
        unit = self.units[number]
        ways = self.ways[unit.demand]
        for hop in self.hops[number]:
            self.busy[ways.links(hop)] -= (unit.end - unit.start) / self.links.rate[ways.links(hop)]
        self.hops[number] = ways.tree(self.busy, unit.end - unit.start, self.bound)


class _Ways:
    """The links from each member of a demand to each wanter."""

    def __init__(self, demand: Demand, links: Links) -> None:
        self.rates = links.rate
        self.members = np.array((*demand.holders, *demand.wanters))
        self.wanters = self.members[len(demand.holders) :]
        self.num_holders = len(demand.holders)
        node = links.node
        self.level = (node[self.members][:, None] != node[self.wanters][None]).astype(np.int64)
        self.out = 4 * self.members[:, None] + 2 * self.level + OUT
        self.into = 4 * self.wanters[None] + 2 * self.level + IN
        self.slowest = float(min(self.rates[self.out].min(), self.rates[self.into].min()))
        own = np.arange(len(self.wanters))
        levels = self.level.copy()
        levels[self.num_holders + own, own] = -1
        self.forwards = np.stack([(levels[self.num_holders :] == n).any(axis=1) for n in (0, 1)], axis=1)
        """[wanter, level]: is there anybody to whom it may send?"""
        self.receives = np.stack([(levels == n).any(axis=0) for n in (0, 1)], axis=1)
        """[wanter, level]: is there anybody from whom it may receive?"""
        self.place = {device: n for n, device in enumerate(self.members.tolist())}

    def links(self, hop: Hop) -> list[int]:
        """The way out and the way in of a hop."""
        row, column = self.place[hop.source], self.place[hop.target] - self.num_holders
        return [self.out[row, column], self.into[row, column]]

    def tree(self, busy: np.ndarray, nbytes: int, bound: float) -> list[Hop]:
        """Hops by which all wanters get so many bytes; `busy` is told of them."""
        hops: list[Hop] = []
        has = np.arange(len(self.members)) < self.num_holders
        for _ in self.wanters:
            out, into = (self._prices(busy, nbytes, devices, bound) for devices in (self.members, self.wanters))
            price = np.where(self.level, out[:, 1, OUT, None] + into[:, 1, IN], out[:, 0, OUT, None] + into[:, 0, IN])
            # All have to be reached; so first those by which others are reached cheaply.
            price += self._least(into[:, :, OUT], self.forwards) - self._least(into[:, :, IN], self.receives)
            price[~has] = np.inf
            price[:, has[self.num_holders :]] = np.inf
            row, column = divmod(int(price.argmin()), len(self.wanters))
            has[self.num_holders + column] = True
            hops.append(Hop(int(self.members[row]), int(self.wanters[column])))
            links = self.links(hops[-1])
            busy[links] += nbytes / self.rates[links]
        return hops

    @staticmethod
    def _least(prices: np.ndarray, possible: np.ndarray) -> np.ndarray:
        """[wanter]: the cheaper level of those that it may use; 0 where there is none."""
        return np.where(possible.any(axis=1), np.where(possible, prices, np.inf).min(axis=1), 0.0)

    def _prices(self, busy: np.ndarray, nbytes: int, devices: np.ndarray, bound: float) -> np.ndarray:
        """[device, level, way]: of so many bytes more."""
        before = busy.reshape(-1, 2, 2)[devices] / bound
        return (before + nbytes / bound / self.rates.reshape(-1, 2, 2)[devices]) ** _POWER - before**_POWER
