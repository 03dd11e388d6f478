"""The direct plan: every device gets exactly the pieces it lacks, from whoever holds them, in rounds of permutes.

Floor: partitioner/reshard.  Knows layouts; nothing of axes.  Works for any tiling and any device order, even or not.

Borders of source and target tiles cut the array into pieces (along a dim they repeat with the least common multiple of
the tile sizes); a piece that lies in a device's target tile comes from its own source tile, or from one of the holders.
Senders and receivers make a bipartite graph; by König's theorem as many rounds suffice as its busiest device has
pieces.  All pieces of a round travel in windows of one size, so pieces of unlike sizes get rounds of their own, or
share them at the price of some padding: `Shipment.choices` prices both.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hlosharding.cost import Machine
from hlosharding.ir import Shape
from hlosharding.partitioner.reshard.colouring import edge_colouring
from hlosharding.partitioner.reshard.layout import Dims, Layout, Table
from hlosharding.partitioner.reshard.pieces import Pieces, Round, round_seconds
from hlosharding.partitioner.reshard.steps import Pairs

MOST_PIECES = 20_000
TOLERANCES = (0.0, 0.05, 0.3, 1.0, math.inf)
"""How much larger than its smallest piece the window of a round may be, as a share of the piece."""
_SPARE_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to group the pieces of a shipment, and what it costs."""

    groups: tuple[tuple[Dims, tuple[int, ...]], ...]
    """(window, pieces)"""
    mean_bytes: float
    seconds: float
    rounds: int


@dataclass(frozen=True, slots=True, eq=False)
class Shipment:
    """Which box goes from where to where; row i of each table is piece i."""

    source: Layout
    target: Layout
    machine: Machine
    senders: Table
    receivers: Table
    low: Table
    """[piece, dim]: where the box starts in the whole array."""
    sizes: Table

    def choices(self, shape: Shape) -> Iterator[Choice]:
        """Ways to ship, from no padding to fewest rounds; those with far more rounds than needed are left out."""
        moving = np.flatnonzero(self.senders != self.receivers)
        most = _SPARE_ROUNDS * (self._busiest(moving) + 1)
        by_size: dict[Dims, list[int]] = defaultdict(list)
        for piece, size in zip(moving.tolist(), map(tuple, self.sizes[moving].tolist()), strict=True):
            by_size[size].append(piece)
        seen: set[int] = set()
        for tolerance in TOLERANCES if len(by_size) > 1 else TOLERANCES[:1]:
            groups = _alike(by_size, tolerance, most)
            choice = self._choice(shape, groups) if groups is not None else None
            if choice is not None and choice.rounds <= most and choice.rounds not in seen:
                seen.add(choice.rounds)
                yield choice

    def _busiest(self, pieces: Sequence[int] | Table) -> int:
        """Rounds that these pieces need."""
        if not len(pieces):
            return 0
        return int(max(np.bincount(self.senders[pieces]).max(), np.bincount(self.receivers[pieces]).max()))

    def _choice(self, shape: Shape, groups: list[tuple[Dims, list[int]]]) -> Choice:
        mean, seconds, rounds = 0.0, 0.0, 0
        for window, members in groups:
            nbytes, turns = shape.with_dims(window).byte_size, self._busiest(members)
            far = tuple(zip(self.senders[members].tolist(), self.receivers[members].tolist(), strict=True))
            mean += nbytes * len(members) / self.source.num_devices
            seconds += turns * round_seconds(nbytes, far, self.machine)
            rounds += turns
        return Choice(tuple((window, tuple(members)) for window, members in groups), mean, seconds, rounds)

    def plan(self, choice: Choice) -> Pieces:
        """The rounds of a choice."""
        local = np.flatnonzero(self.senders == self.receivers).tolist()
        turns: list[list[int]] = [local] if local else []
        for _, members in choice.groups:
            senders, receivers = self.senders[list(members)].tolist(), self.receivers[list(members)].tolist()
            turns += [[members[i] for i in turn] for turn in edge_colouring(senders, receivers)]
        starts = self.source.starts, self.target.starts
        return Pieces(self.target.tile, tuple(self._round(turn, *starts) for turn in turns))

    def _round(self, pieces: list[int], source_starts: Table, target_starts: Table) -> Round:
        rank = len(self.source.dims)
        read, write, real = np.zeros((3, rank, self.source.num_devices), np.int64)
        senders, receivers, low, sizes = (t[pieces] for t in (self.senders, self.receivers, self.low, self.sizes))
        read[:, senders] = (low - source_starts[senders]).T
        write[:, receivers] = (low - target_starts[receivers]).T
        real[:, receivers] = sizes.T
        window = sizes.max(axis=0)
        pairs: Pairs = tuple(sorted(zip(senders.tolist(), receivers.tolist(), strict=True)))
        differ = bool((sizes != window).any())
        return Round(tuple(window.tolist()), _rows(read), _rows(write), pairs, _rows(real) if differ else ())


def _rows(table: Table) -> tuple[Dims, ...]:
    return tuple(map(tuple, table.tolist()))


def _alike(by_size: dict[Dims, list[int]], tolerance: float, most: int) -> list[tuple[Dims, list[int]]] | None:
    """Pieces grouped so that a group's window is at most 1 + tolerance times its smallest; None: too many groups."""
    if tolerance == 0.0:
        return list(by_size.items()) if len(by_size) <= most else None
    groups: list[tuple[Dims, list[int]]] = []
    for size in sorted(by_size, key=lambda s: (-math.prod(s), s)):
        for number, (window, members) in enumerate(groups):
            joined = tuple(map(max, window, size))
            if math.prod(joined) <= (1 + tolerance) * math.prod(size):
                groups[number] = (joined, members + by_size[size])
                break
        else:
            groups.append((size, by_size[size]))
        if len(groups) > most:
            return None
    return groups


def shipment(source: Layout, target: Layout, machine: Machine, most: int | None = MOST_PIECES) -> Shipment | None:
    """The pieces to send from one layout to another; None if there are more than `most`.

    >>> from hlosharding.cost import machines
    >>> from hlosharding.partitioner.reshard.layout import layout_of
    >>> from hlosharding.sharding import HloSharding
    >>> a, b = HloSharding.parse("{devices=[2,3]<=[6]}"), HloSharding.parse("{devices=[3,2]<=[6]}")
    >>> pieces = shipment(layout_of(a, (6, 6), 6), layout_of(b, (6, 6), 6), machines.h100(6))
    >>> [(choice.rounds, round(choice.mean_bytes, 3)) for choice in pieces.choices(Shape.parse("u8[6,6]"))]
    [(6, 4.0), (4, 6.0)]
    """
    tiles, holders = _source_tiles(source)
    wanted = _overlaps(source, target, tiles)
    receivers, numbers = np.nonzero(wanted)
    if most is not None and len(receivers) > most:
        return None
    first = np.array([devices[0] for devices in holders], np.int64)[numbers]
    (low, high), (want_low, want_high) = source.bounds(), target.bounds()
    start = np.maximum(want_low[receivers], low[first])
    sizes = np.minimum(want_high[receivers], high[first]) - start
    senders = _choose_holders(receivers.tolist(), numbers.tolist(), holders, machine)
    return Shipment(source, target, machine, np.array(senders, np.int64), receivers, start, sizes)


def _overlaps(source: Layout, target: Layout, tiles: Table) -> np.ndarray:
    """[device, source tile]: does the device's target tile share real elements with that source tile?"""
    wanted = target.world[:, None] == tiles[None, :, 0]
    wanted &= target.has_data()[:, None]
    for dim, size in enumerate(source.dims):
        ours, theirs = (_intervals(size, layout.counts[dim]) for layout in (target, source))
        meets = np.minimum(ours[1][:, None], theirs[1]) > np.maximum(ours[0][:, None], theirs[0])
        wanted &= meets[target.index[:, dim][:, None], tiles[None, :, dim + 1]]
    return wanted


def _intervals(size: int, count: int) -> tuple[Table, Table]:
    """Start and end of the real elements of every tile along a dim."""
    step = -(-size // count)
    starts = np.arange(count, dtype=np.int64) * step
    return np.minimum(starts, size), np.minimum(starts + step, size)


def _source_tiles(source: Layout) -> tuple[Table, list[list[int]]]:
    """Distinct tiles as rows (world, index), and the devices that hold each."""
    rows = np.concatenate([source.world[:, None], source.index], axis=1)
    if source.holder is not None:
        return rows[source.holder : source.holder + 1], [[source.holder]]
    holders: dict[Dims, list[int]] = {}
    for device, tile in enumerate(map(tuple, rows.tolist())):
        holders.setdefault(tile, []).append(device)
    return np.array(list(holders), np.int64), list(holders.values())


def _choose_holders(
    receivers: Sequence[int], numbers: Sequence[int], holders: Sequence[Sequence[int]], machine: Machine
) -> list[int]:
    """A holder for each piece: the receiver itself, else the least busy one, near before far."""
    load = [0] * (max(map(max, holders), default=0) + 1)
    node = [machine.node_of(device) for device in range(max(len(load), max(receivers, default=0) + 1))]
    out: list[int] = []
    far = 1 + len(receivers) // max(1, len(set(receivers)))
    for receiver, number in zip(receivers, numbers, strict=True):
        devices = holders[number]
        chosen = receiver
        if len(devices) == 1:
            chosen = devices[0]
        elif receiver not in devices:
            home = node[receiver]
            chosen = min(devices, key=lambda d: load[d] + (far if node[d] != home else 0))
        if chosen != receiver:
            load[chosen] += 1
        out.append(chosen)
    return out
