"""Layers divided into stages, each on a submesh of its own, so that a step takes least: Alpa's dynamic program between
operators (Zheng and others 2022, section 5.2), with memory and with what runs once a step.

Floor: search.  Plain numbers; knows nothing of programs.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from hlosharding.search.stages.run_prices import Numbers, RunPrices, Stage


class Division(NamedTuple):
    """Stages, the first layers first."""

    seconds: float
    """Of a step."""
    stages: tuple[Stage, ...]


def divide_layers(prices: RunPrices, *, devices: int, microbatches: int, memory_bytes: float) -> Division | None:
    """The division of all layers over all devices with which a step takes least; None where none fits.

    A step takes what one microbatch takes through all stages, and the pace of the slowest of these (`RunPrices.pace`).
    Under 1F1B the n-th stage from the end holds n microbatches, at most all.  Of divisions that take the same the one
    with the most even stages, and of these the one whose longer stages come first: others then wait less at the end.

    >>> one = np.array([[2.0, 1.0, 1.0, 2.0]])
    >>> prices = RunPrices.of_layers([1], seconds=one, once=0 * one, kept=one, held=0 * one, scratch=0 * one)
    >>> divide_layers(prices, devices=2, microbatches=4, memory_bytes=3.0)
    Division(seconds=15.0, stages=(Stage(first=0, stop=2, option=0), Stage(first=2, stop=4, option=0)))
    """
    return _Divider(prices, devices, microbatches, memory_bytes).divide()


class _Limits(NamedTuple):
    """Of the limits of the pace, by number, those from the first to the one before `stop`."""

    bound: float
    """No step takes less within them."""
    first: int
    stop: int
    least: float
    """Nor one microbatch."""


class _Divider:
    """A dynamic program finds, within a limit of the pace, the division whose microbatch takes least.  Within lower
    limits it takes no less: that is a bound for all of these, so few limits are tried."""

    def __init__(self, prices: RunPrices, devices: int, microbatches: int, memory_bytes: float) -> None:
        self.prices, self.microbatches = prices, microbatches
        # Options of one size lie together: of these the table needs only the cheapest (`np.minimum.reduceat`).
        order = np.argsort(prices.devices, kind="stable")
        self.options = order[prices.devices[order] <= devices]
        """Those that there is room for, by size."""
        # Counted in what all sizes share the table is smaller: of stages of 8 devices each, 64 are 8.
        unit = np.gcd.reduce(prices.devices[self.options], initial=devices)
        self.devices, own = devices // unit, prices.devices[self.options] // unit
        self.sizes, self.starts = np.unique(own, return_index=True)
        most = min(prices.layers, self.devices // self.sizes.min(initial=self.devices))
        in_flight = np.minimum(np.arange(1, most + 1), microbatches)[:, None, None, None]
        fits = prices.kept + in_flight * prices.held <= memory_bytes
        self.seconds = np.where(fits, prices.seconds, np.inf)[:, self.options]
        """[stages behind it, option, first, last]"""
        self.pace = prices.pace(microbatches)[self.options]

    def divide(self) -> Division | None:
        """Limits that promise most are tried first, until none promises more than what was found."""
        limits, best = self._limits(), None
        waiting = [_Limits(0.0, 0, len(limits), 0.0)] if len(limits) else []
        while waiting and (best is None or waiting[0].bound < best.seconds):
            _, first, stop, least = heappop(waiting)
            # The loosest limit first: if nothing fits within that, nothing does within others.
            tried = stop - 1 if best is None else (first + stop) // 2
            rest = [(tried + 1, stop, least)]
            if stages := self._divide_within(limits[tried], self.seconds):
                way, pace = self.prices.times_of(stages, self.microbatches)
                best = min(filter(None, (best, Division(way + pace, tuple(stages)))))
                # Limits between the pace that was found and the one that was tried would give the same division.
                rest.append((first, int(np.searchsorted(limits, pace)), way))
            for begin, end, least in rest:
                if begin < end:
                    heappush(waiting, _Limits(limits[begin] + least, begin, end, least))
        return best and self._even_out(best)

    def _even_out(self, found: Division) -> Division:
        """The smaller the squares, the more even; of stages with more behind them they count a little less."""
        _, pace = self.prices.times_of(found.stages, self.microbatches)
        weights = np.linspace(1.0, 0.99, len(self.seconds))[:, None, None, None]
        even = self._divide_within(pace * _SAME, weights * self.seconds**2) or found.stages
        seconds = sum(self.prices.times_of(even, self.microbatches))
        return Division(seconds, tuple(even)) if seconds <= found.seconds * _SAME else found

    def _limits(self) -> Numbers:
        """All paces that a stage may have, in rising order."""
        is_run = np.triu(np.ones(self.pace.shape[1:], bool))
        # Whoever does not fit with one microbatch, as the last stage has it, fits nowhere.
        return np.unique(self.pace[is_run & np.isfinite(self.seconds[0])])

    def _divide_within(self, limit: float, costs: Numbers) -> list[Stage] | None:
        """The stages of least cost, if there are any so that none is slower than the limit."""
        allowed = np.where(self.pace <= limit, costs, np.inf)
        least = np.minimum.reduceat(allowed, self.starts, axis=1)
        table = self._fill_table(least)
        count = int(table[0, :, self.devices].argmin())
        return self._read_stages(table, least, allowed, count) if np.isfinite(table[0, count, self.devices]) else None

    def _fill_table(self, least: Numbers) -> Numbers:
        """[first layer, stages, devices]: the cost from there to the end.  `least`: of each stage by [stages behind it,
        size, first, last]."""
        most, _, layers, _ = least.shape
        table = np.full((layers + 1, most + 1, self.devices + 1), np.inf)
        table[layers, 0, 0] = 0.0
        for first in reversed(range(layers)):
            # No stage is without a layer.
            deepest = min(most, layers - first)
            for size, own in zip(self.sizes, np.moveaxis(least[:deepest, :, first, first:], 1, 0), strict=True):
                behind = table[first + 1 :, :deepest, : self.devices + 1 - size]
                target = table[first, 1 : deepest + 1, size:]
                np.minimum(target, (own.T[:, :, None] + behind).min(axis=0), out=target)
        return table

    def _read_stages(self, table: Numbers, least: Numbers, allowed: Numbers, count: int) -> list[Stage]:
        """Those whose cost is the table's."""
        stages, first, devices = list[Stage](), 0, self.devices
        for behind in reversed(range(count)):
            sizes = self.sizes[self.sizes <= devices]
            rest = table[first + 1 :, behind, devices - sizes]
            # Found again from what is left to pay: the table keeps costs alone, not who made them.
            costs = least[behind, : len(sizes), first, first:].T + rest
            further, size = np.unravel_index(int(costs.argmin()), costs.shape)
            last, own = first + int(further), slice(self.starts[size], [*self.starts, None][size + 1])
            option = self.options[own][allowed[behind, own, first, last].argmin()]
            stages.append(Stage(first, last + 1, int(option)))
            first, devices = stages[-1].stop, devices - int(sizes[size])
        return stages


_SAME = 1 + 1e-12
"""Sums of the same numbers in another order are the same."""
