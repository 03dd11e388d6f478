"""The links of devices, and the least that the busiest one must carry, whatever the plan.

Floor: transfer.  Each device has a way out and a way in, inside its node and between nodes, as in a schedule's
simulation.  Without a machine there is one node, and a link is as busy as it has bytes.

The bound is a linear program.  Of each demand it knows how much every device sends and receives at each level, and asks
of that only what must be so: that each wanter receives its bytes once, that every node without a holder receives them
from outside, that holders send them first.  So no plan in which devices receive just what they lack is below it, also
none that forwards through wanters or cuts pieces finely.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlosharding.cost import Machine
from hlosharding.transfer.pieces import Demand

LEVELS = ("inside", "between")
OUT, IN = 0, 1


@dataclass(frozen=True, eq=False)
class DeviceLinks:
    """Links by number: of a device at a level, its way out, then its way in."""

    machine: Machine | None
    num_devices: int
    node: np.ndarray
    """[device]"""
    rate: np.ndarray
    """[link]: bytes a second; 1 without a machine."""

    @classmethod
    def of(cls, machine: Machine | None, num_devices: int) -> DeviceLinks:
        """The links of as many devices."""
        if machine is None:
            return cls(None, num_devices, np.zeros(num_devices, np.int64), np.ones(4 * num_devices))
        kinds = [machine.kind_of((device,)) for device in range(num_devices)]
        rates = [getattr(kind, level).bandwidth for kind in kinds for level in LEVELS for _ in (OUT, IN)]
        return cls(machine, num_devices, np.array([*map(machine.node_of, range(num_devices))]), np.array(rates))

    def number(self, device: int, level: int, way: int) -> int:
        """Of a link.

        >>> DeviceLinks.of(None, 2).name(DeviceLinks.of(None, 2).number(1, 0, IN))
        'into device 1'
        """
        return 4 * device + 2 * level + way

    def latency(self, link: int) -> float:
        """Seconds of one hop; none without a machine."""
        level = LEVELS[link % 4 // 2]
        return 0.0 if self.machine is None else getattr(self.machine.kind_of((link // 4,)), level).latency

    def name(self, link: int) -> str:
        """What a table calls a link."""
        level = "" if self.machine is None else ("inside its node, ", "between nodes, ")[link % 4 // 2]
        return f"{level}{('out of', 'into')[link % 2]} device {link // 4}"


def least_busiest(demands: Sequence[Demand], links: DeviceLinks) -> float:
    """Seconds (bytes without a machine) for which some link is busy at least.

    A broadcast to three: each receives 8 bytes, and nobody needs to send more.

    >>> from hlosharding.transfer.pieces import TilePiece
    >>> least_busiest([Demand((0,), (1, 2, 3), [TilePiece(0, 1, ((0, 8),), 8)])], DeviceLinks.of(None, 4))
    8.0
    """
    if not demands:
        return 0.0
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    # In figures around one, since the solver's tolerances are absolute.
    program = _LinearProgram(links, unit=max(demand.nbytes for demand in demands))
    for demand in demands:
        program.add(demand)
    program.limit_links()
    numbers, columns, values = zip(*program.entries, strict=True)
    table = csr_array((values, (numbers, columns)), shape=(len(program.low), len(program.most)))
    limits: Any = (program.low, program.high)
    most: Any = program.most
    least = np.eye(1, len(most)).ravel()
    found = milp(least, constraints=LinearConstraint(table, *limits), bounds=Bounds(0.0, most))
    return float(found.fun) * program.unit / program.fastest


class _LinearProgram:
    """Column 0 is how long the busiest link is busy; the others are what a device sends or receives of a demand."""

    def __init__(self, links: DeviceLinks, unit: float) -> None:
        self.links, self.unit, self.fastest = links, unit, float(links.rate.max())
        self.most = [np.inf]
        """[column]: its upper bound."""
        self.entries: list[tuple[int, int, float]] = []
        """(row, column, value)"""
        self.low: list[float] = []
        self.high: list[float] = []
        self.through: dict[int, list[int]] = defaultdict(list)
        """[link]: columns that it carries."""
        self.wanted: dict[int, float] = defaultdict(float)
        """[device]: all that it receives."""

    def add(self, demand: Demand) -> None:
        """Columns of a demand, and what they must fulfil."""
        node, size = self.links.node, demand.nbytes / self.unit
        members = (*demand.holders, *demand.wanters)
        here = {n: [d for d in demand.wanters if node[d] == n] for n in dict.fromkeys(node[d] for d in members)}
        homes = {node[d] for d in demand.holders}
        near = {d: self._column(d, 0, OUT) for d in members if set(here[node[d]]) - {d}}
        far = {d: self._column(d, 1, OUT) for d in members if len(here[node[d]]) < len(demand.wanters)}
        taken = {d: self._column(d, 1, IN, size) for d in demand.wanters if len(here) > 1}
        for device in demand.wanters:
            self.wanted[device] += size
        self._row(0, 0, far.values(), taken.values())
        for number, wanters in here.items():
            arriving = [taken[d] for d in wanters if d in taken]
            sent = {d: column for d, column in near.items() if node[d] == number}
            self._row(len(wanters) * size, len(wanters) * size, [*sent.values(), *arriving])
            if wanters:
                # Its first copy in a node comes from a holder there or from outside.  Else wanters would get it from
                # each other, of whom none has it.
                self._row(size, np.inf, [*(sent[d] for d in demand.holders if d in sent), *arriving])
        # The same of all nodes together, and of nodes that are to be sent something by those with holders.
        self._row(size, np.inf, [sent[d] for sent in (near, far) for d in demand.holders if d in sent])
        if any(wanters and number not in homes for number, wanters in here.items()):
            self._row(size, np.inf, [column for d, column in far.items() if node[d] in homes])

    def limit_links(self) -> None:
        """No link is busier than the busiest."""
        for link, columns in self.through.items():
            self._limit(link, 0.0, columns)
        for device, size in self.wanted.items():
            # What comes from inside the node has no columns: it is what is wanted, less what comes from outside.
            self._limit(self.links.number(device, 0, IN), size, (), self.through[self.links.number(device, 1, IN)])

    def _limit(self, link: int, always: float, plus: Iterable[int], minus: Iterable[int] = ()) -> None:
        self.entries.append((len(self.low), 0, -float(self.links.rate[link]) / self.fastest))
        self._row(-np.inf, -always, plus, minus)

    def _column(self, device: int, level: int, way: int, most: float = np.inf) -> int:
        self.most.append(most)
        self.through[self.links.number(device, level, way)].append(len(self.most) - 1)
        return len(self.most) - 1

    def _row(self, low: float, high: float, plus: Iterable[int], minus: Iterable[int] = ()) -> None:
        self.entries += [(len(self.low), column, 1.0) for column in plus]
        self.entries += [(len(self.low), column, -1.0) for column in minus]
        self.low.append(low)
        self.high.append(high)
