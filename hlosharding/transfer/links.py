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
from dataclasses import dataclass, field

import numpy as np

from hlosharding.cost import Machine
from hlosharding.transfer.pieces import Demand

LEVELS = ("inside", "between")
OUT, IN = 0, 1


@dataclass(frozen=True, eq=False)
class Links:
    """Links by number: of a device at a level, its way out, then its way in."""

    machine: Machine | None
    num_devices: int
    node: np.ndarray
    """[device]"""
    rate: np.ndarray
    """[link]: bytes a second; 1 without a machine."""

    @classmethod
    def of(cls, machine: Machine | None, num_devices: int) -> Links:
        """The links of as many devices."""
        if machine is None:
            return cls(None, num_devices, np.zeros(num_devices, np.int64), np.ones(4 * num_devices))
        kinds = [machine.kind_of((device,)) for device in range(num_devices)]
        rates = [getattr(kind, level).bandwidth for kind in kinds for level in LEVELS for _ in (OUT, IN)]
        return cls(machine, num_devices, np.array([*map(machine.node_of, range(num_devices))]), np.array(rates))

    def number(self, device: int, level: int, way: int) -> int:
        """Of a link.

        >>> Links.of(None, 2).name(Links.of(None, 2).number(1, 0, IN))
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


def least_busiest(demands: Sequence[Demand], links: Links) -> float:
    """Seconds (bytes without a machine) for which some link is busy at least.

    A broadcast to three: each receives 8 bytes, and nobody needs to send more.

    >>> from hlosharding.transfer.pieces import Piece
    >>> least_busiest([Demand((0,), (1, 2, 3), [Piece(0, 1, ((0, 8),), 8)])], Links.of(None, 4))
    8.0
    """
    if not demands:
        return 0.0
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    program = _Program(links, unit=max(demand.nbytes for demand in demands))
    for demand in demands:
        program.add(demand)
    program.limit_links()
    count = len(program.most)
    upper, equal = (
        csr_array((rows.values, (rows.rows, rows.columns)), shape=(len(rows.bounds), count))
        for rows in (program.upper, program.equal)
    )
    found = linprog(
        np.eye(1, count).ravel(),
        A_ub=upper,
        b_ub=program.upper.bounds,
        A_eq=equal,
        b_eq=program.equal.bounds,
        bounds=[(0.0, most) for most in program.most],
    )
    return float(found.fun) * program.unit / program.fastest


@dataclass(slots=True)
class _Rows:
    """Rows of a sparse matrix, and what each is bounded by."""

    rows: list[int] = field(default_factory=list[int])
    columns: list[int] = field(default_factory=list[int])
    values: list[float] = field(default_factory=list[float])
    bounds: list[float] = field(default_factory=list[float])

    def add(self, bound: float, plus: Iterable[int], minus: Iterable[int] = ()) -> None:
        for sign, columns in ((1.0, list(plus)), (-1.0, list(minus))):
            self.rows += [len(self.bounds)] * len(columns)
            self.columns += columns
            self.values += [sign] * len(columns)
        self.bounds.append(bound)


class _Program:
    """Column 0 is how long the busiest link is busy; the others are what a device sends or receives of a demand."""

    def __init__(self, links: Links, unit: float) -> None:
        self.links, self.unit, self.fastest = links, unit, float(links.rate.max())
        self.most: list[float | None] = [None]
        """[column]: its upper bound."""
        self.upper, self.equal = _Rows(), _Rows()
        self.through: dict[int, list[int]] = defaultdict(list)
        """[link]: columns that it carries."""
        self.wanted: dict[int, float] = defaultdict(float)
        """[device]: all that it receives."""

    def add(self, demand: Demand) -> None:
        """Columns of a demand, and what they must fulfil."""
        node, size = self.links.node, demand.nbytes / self.unit
        members, inside, across = (*demand.holders, *demand.wanters), defaultdict[int, list[int]](list), []
        wanters, holders = _by_node(demand.wanters, node), _by_node(demand.holders, node)
        sent: dict[int, list[int]] = {device: [] for device in members}
        for device in members:
            here = [d for d in wanters.get(node[device], ()) if d != device]
            if here:
                sent[device].append(self._column(device, 0, OUT))
                inside[node[device]].append(sent[device][-1])
            if len(wanters) > (node[device] in wanters):
                sent[device].append(self._column(device, 1, OUT))
                across.append((device, sent[device][-1]))
        received = self._received(demand, {node[d] for d in members}, size)
        self.equal.add(0.0, [column for _, column in across], received.values())
        for number, devices in wanters.items():
            arriving = [received[d] for d in devices if d in received]
            self.equal.add(len(devices) * size, [*inside[number], *arriving])
            first = [column for d in holders.get(number, ()) for column in sent[d] if column in inside[number]]
            self.upper.add(-size, (), [*first, *arriving])
        self.upper.add(-size, (), [column for d in demand.holders for column in sent[d]])
        if wanters.keys() - holders.keys():
            self.upper.add(-size, (), [column for d, column in across if node[d] in holders])

    def _received(self, demand: Demand, nodes: set[int], size: float) -> dict[int, int]:
        """Of each wanter the column of what it receives from other nodes, if there are any."""
        found: dict[int, int] = {}
        for device in demand.wanters:
            self.wanted[device] += size
            if len(nodes) > 1:
                found[device] = self._column(device, 1, IN, size)
        return found

    def _column(self, device: int, level: int, way: int, most: float | None = None) -> int:
        self.most.append(most)
        self.through[self.links.number(device, level, way)].append(len(self.most) - 1)
        return len(self.most) - 1

    def limit_links(self) -> None:
        """No link is busier than the busiest."""
        for link, columns in self.through.items():
            self._limit(link, 0.0, columns)
        for device, size in self.wanted.items():
            across = self.through.get(self.links.number(device, 1, IN), [])
            self._limit(self.links.number(device, 0, IN), size, (), across)

    def _limit(self, link: int, always: float, plus: Sequence[int], minus: Sequence[int] = ()) -> None:
        speed = float(self.links.rate[link]) / self.fastest
        self.upper.add(-always, plus, minus)
        self.upper.rows.append(len(self.upper.bounds) - 1)
        self.upper.columns.append(0)
        self.upper.values.append(-speed)


def _by_node(devices: Sequence[int], node: np.ndarray) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for device in devices:
        found[node[device]].append(device)
    return found
