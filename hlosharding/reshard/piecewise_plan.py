"""The direct plan: every device gets exactly the pieces it lacks, from whoever holds them, in rounds of permutes.

Floor: reshard.  Knows layouts; nothing of axes.  Works for any tiling and any device order, even or not.

Borders of source and target tiles cut the array into pieces (along a dim they repeat with the least common multiple of
the tile sizes); a piece that lies in a device's target tile comes from its own source tile, or from one of the holders.
Senders and receivers make a bipartite graph; by König's theorem as many rounds suffice as its busiest device has
pieces.  All pieces of a round travel in windows of one size, so pieces of unlike sizes get rounds of their own, or
share them at the price of some padding.  Where many devices want the same tile, one of them may get it and pass it on,
doubling those who have it each round.  `Shipment.choices` prices all of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlosharding.cost import Machine
from hlosharding.ir import Shape
from hlosharding.reshard.edge_colouring import edge_colouring
from hlosharding.reshard.layout import Dims, Layout, Table
from hlosharding.reshard.pieces import RESULT, Pieces, Round, round_seconds
from hlosharding.reshard.regions import Region, Wanted, count_of, pieces_of
from hlosharding.reshard.steps import Pairs

MOST_PIECES = 8_000
TOLERANCES = (0.0, 0.05, 0.3, 1.0, math.inf)
"""How much larger than its smallest piece the window of a round may be, as a share of the piece."""
_SPARE_ROUNDS = 4

Groups = dict[Dims, list[int]]
"""window -> pieces"""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to group the pieces of a shipment, and what it costs."""

    groups: tuple[tuple[Dims, tuple[int, ...]], ...]
    """(window, pieces that travel)"""
    spread: tuple[Pairs, ...]
    """Rounds in which whole target tiles are passed on."""
    mean_bytes: float
    seconds: float
    rounds: int
    is_grown: bool
    """With padding that comes along."""


@dataclass(frozen=True, slots=True, eq=False)
class Shipment:
    """Which box goes from where to where; row i of each table is piece i."""

    target: Layout
    tiles: tuple[Dims, ...]
    """Local sizes of each operand."""
    machine: Machine
    regions: tuple[Region, ...]
    variants: tuple[tuple[int, Dims], ...]
    """What pieces are cut from: (operand, dims along which it is turned round first)."""
    region: Table
    """[piece]: its region."""
    senders: Table
    receivers: Table
    read: Table
    """[piece, dim]: where the box starts in the sender's (turned) tile of its operand."""
    write: Table
    """[piece, dim]: where it starts in the receiver's tile."""
    sizes: Table
    grown: Table
    """[piece, dim]: sizes with the padding that may come along, so that pieces are more alike."""
    is_grown: bool = False
    """Are those its sizes?"""

    @property
    def num_devices(self) -> int:
        return self.target.num_devices

    def choices(self, shape: Shape) -> Iterator[Choice]:
        """Ways to ship, from no padding to fewest rounds; those with far more rounds than needed are left out."""
        yield from self._choices(shape, np.flatnonzero(self.senders != self.receivers), ())
        if not self.is_grown and (self.grown != self.sizes).any():
            yield from replace(self, sizes=self.grown, is_grown=True).choices(shape)
            return
        seeds = self._seeds()
        if seeds is not None:
            chosen, spread = seeds
            moving = (self.senders != self.receivers) & np.isin(self.receivers, chosen)
            yield from self._choices(shape, np.flatnonzero(moving), spread)

    def _choices(self, shape: Shape, moving: Table, spread: tuple[Pairs, ...]) -> Iterator[Choice]:
        most = _SPARE_ROUNDS * (self._busiest(moving) + 1)
        by_steps: dict[tuple[Dims, Dims], Groups] = defaultdict(lambda: defaultdict(list))
        for number in np.unique(self.region[moving]).tolist():
            mine = moving[self.region[moving] == number]
            by_size = by_steps[self.regions[number].steps]
            for piece, size in zip(mine.tolist(), map(tuple, self.sizes[mine].tolist()), strict=True):
                by_size[size].append(piece)
        is_alike = all(len(by_size) == 1 for by_size in by_steps.values())
        seen: set[int] = set()
        for tolerance in TOLERANCES[:1] if is_alike else TOLERANCES:
            groups = [_alike(by_size, tolerance, most) for by_size in by_steps.values()]
            if any(found is None for found in groups):
                continue
            choice = self._choice(shape, [g for found in groups if found for g in found], spread)
            if choice.rounds <= most + len(spread) and choice.rounds not in seen:
                seen.add(choice.rounds)
                yield choice

    def _busiest(self, pieces: Sequence[int] | Table) -> int:
        """Rounds that these pieces need."""
        if not len(pieces):
            return 0
        return int(max(np.bincount(self.senders[pieces]).max(), np.bincount(self.receivers[pieces]).max()))

    def _choice(self, shape: Shape, groups: list[tuple[Dims, list[int]]], spread: tuple[Pairs, ...]) -> Choice:
        mean, seconds, rounds = 0.0, 0.0, len(spread)
        for window, members in groups:
            nbytes, turns = shape.with_dims(window).byte_size, self._busiest(members)
            far = tuple(zip(self.senders[members].tolist(), self.receivers[members].tolist(), strict=True))
            mean += nbytes * len(members) / self.num_devices
            whole = self.tiles[self.regions[self.region[members[0]]].operand]
            kernels = (window != whole) + (window != self.target.tile)
            seconds += turns * round_seconds(nbytes, far, self.machine, kernels=kernels)
            rounds += turns
        tile = shape.with_dims(self.target.tile).byte_size
        mean += tile * sum(map(len, spread)) / self.num_devices
        seconds += sum(round_seconds(tile, pairs, self.machine, kernels=0) for pairs in spread)
        return Choice(
            tuple((window, tuple(members)) for window, members in groups), spread, mean, seconds, rounds, self.is_grown
        )

    def _seeds(self) -> tuple[list[int], tuple[Pairs, ...]] | None:
        """(devices that get their tile from holders, how they pass it on); None where tiles are wanted once."""
        missing = np.zeros(self.num_devices, np.int64)
        moves = self.senders != self.receivers
        np.add.at(missing, self.receivers[moves], self.sizes[moves].prod(axis=1))
        copies: dict[Dims, list[int]] = defaultdict(list)
        for device in np.flatnonzero(self.target.has_data()).tolist():
            copies[(int(self.target.world[device]), *self.target.index[device].tolist())].append(device)
        if all((missing[devices] > 0).sum() < 2 for devices in copies.values()):
            return None
        seeds: list[int] = []
        rounds: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for devices in copies.values():
            have = [d for d in devices if not missing[d]] or [min(devices, key=lambda d: int(missing[d]))]
            seeds += have
            left, turn = [d for d in devices if d not in have], 0
            while left:
                pairs = list(zip(have, left, strict=False))
                rounds[turn] += pairs
                have, left, turn = have + left[: len(pairs)], left[len(pairs) :], turn + 1
        return seeds, tuple(tuple(sorted(pairs)) for pairs in rounds.values())

    def plan(self, choice: Choice) -> Pieces:
        """The rounds of a choice."""
        if choice.is_grown and not self.is_grown:
            return replace(self, sizes=self.grown, is_grown=True).plan(choice)
        stays = self.senders == self.receivers
        if choice.spread:
            later = {target for pairs in choice.spread for _, target in pairs}
            stays &= ~np.isin(self.receivers, list(later))
        local = np.flatnonzero(stays)
        groups = [np.flatnonzero(stays & (self.region == n)).tolist() for n in np.unique(self.region[local])]
        local_turns, moving_turns = (
            [turn for members in some for turn in self._turns(members)]
            for some in (groups, [list(members) for _, members in choice.groups])
        )
        turns = self._together(local_turns, moving_turns)
        rounds = [self._round(turn) for turn in turns] + [self._passed_on(pairs) for pairs in choice.spread]
        return Pieces(self.target.tile, tuple(rounds))

    def _turns(self, members: list[int]) -> Iterator[list[int]]:
        """The pieces of each round."""
        for turn in edge_colouring(self.senders[members].tolist(), self.receivers[members].tolist()):
            yield [members[i] for i in turn]

    def _together(self, local: list[list[int]], moving: list[list[int]]) -> list[list[int]]:
        """Pieces that stay join a round with the same window in which their devices have nothing to do."""
        left: list[list[int]] = []
        for staying in local:
            joined = next((turn for turn in moving if self._may_join(staying, turn)), left)
            joined += staying if joined is not left else [staying]
        return left + moving

    def _may_join(self, staying: list[int], turn: list[int]) -> bool:
        windows = (self.sizes[pieces].max(axis=0).tolist() for pieces in (staying, turn))
        busy = np.concatenate([self.senders[turn], self.receivers[turn]])
        is_same = self.region[staying[0]] == self.region[turn[0]] and next(windows) == next(windows)
        return bool(is_same and not np.isin(self.receivers[staying], busy).any())

    def _round(self, pieces: list[int]) -> Round:
        rank = len(self.target.dims)
        read, write, real = np.zeros((3, rank, self.num_devices), np.int64)
        senders, receivers, sizes = (t[pieces] for t in (self.senders, self.receivers, self.sizes))
        read[:, senders] = self.read[pieces].T
        write[:, receivers] = self.write[pieces].T
        real[:, receivers] = sizes.T
        operands = np.zeros(self.num_devices, np.int64)
        numbers = self.region[pieces]
        regions = [self.regions[number] for number in np.unique(numbers).tolist()]
        for number, region in zip(np.unique(numbers).tolist(), regions, strict=True):
            operands[senders[numbers == number]] = self.variants.index((region.operand, region.turned))
        window = sizes.max(axis=0)
        pairs: Pairs = tuple(sorted(zip(senders.tolist(), receivers.tolist(), strict=True)))
        differ = bool((sizes != window).any())
        return Round(
            tuple(window.tolist()),
            _rows(read),
            _rows(write),
            pairs,
            _rows(real) if differ else (),
            tuple(operands.tolist()) if operands.any() else (),
            *regions[0].steps,
        )

    def _passed_on(self, pairs: Pairs) -> Round:
        start = ((0,) * self.num_devices,) * len(self.target.dims)
        return Round(self.target.tile, start, start, pairs, operands=(RESULT,) * self.num_devices)


def _rows(table: Table) -> tuple[Dims, ...]:
    return tuple(map(tuple, table.tolist()))


def _alike(by_size: Groups, tolerance: float, most: int) -> list[tuple[Dims, list[int]]] | None:
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
    return shipment_of((Region.whole(source.dims),), (source,), target, machine, most)


def shipment_of(
    regions: tuple[Region, ...],
    sources: Sequence[Layout],
    target: Layout,
    machine: Machine,
    most: int | None = MOST_PIECES,
) -> Shipment | None:
    """The pieces to send so that every device has its tile of what `regions` make of several operands."""
    found: list[Wanted] = []
    for region in regions:
        source = sources[region.operand]
        if most is not None and target.num_devices**2 > most and count_of(region, source, target) > most:
            return None
        found.append(pieces_of(region, source, target))
        if most is not None and sum(len(part.receivers) for part in found) > most:
            return None
    local = tuple(source.tile for source in sources)
    if not found:
        none = np.zeros(0, np.int64)
        empty = np.zeros((0, len(target.dims)), np.int64)
        return Shipment(target, local, machine, (), (), none, none, none, empty, empty, empty, empty)

    def joined(name: str) -> Table:
        return np.concatenate([getattr(part, name) for part in found])

    return Shipment(
        target,
        local,
        machine,
        regions,
        tuple(dict.fromkeys((region.operand, region.turned) for region in regions)),
        np.repeat(np.arange(len(found)), [len(part.receivers) for part in found]),
        np.array(_choose_holders(found, machine), np.int64),
        joined("receivers"),
        joined("read"),
        joined("write"),
        joined("sizes"),
        joined("grown"),
    )


def _choose_holders(wanted: Sequence[Wanted], machine: Machine) -> list[int]:
    """A holder for each piece: the receiver itself, else the least busy one, near before far."""
    receivers = [receiver for part in wanted for receiver in part.receivers.tolist()]
    holders = [part.holders[tile] for part in wanted for tile in part.tiles.tolist()]
    devices = max((d for part in wanted for row in part.holders for d in row), default=0)
    load = [0] * (max(devices, max(receivers, default=0)) + 1)
    node = [machine.node_of(device) for device in range(len(load))]
    out: list[int] = []
    far = 1 + len(receivers) // max(1, len(set(receivers)))
    near_by: dict[tuple[int, int], list[int]] = {}
    busy = load.__getitem__
    for receiver, having in zip(receivers, holders, strict=True):
        chosen = receiver
        if len(having) == 1:
            chosen = having[0]
        elif receiver not in having:
            home = node[receiver]
            chosen = min(having, key=busy)
            if node[chosen] != home:
                near = near_by.get((id(having), home))
                if near is None:
                    near = near_by[id(having), home] = [d for d in having if node[d] == home]
                chosen = min((*near, chosen), key=lambda d: load[d] + (far if node[d] != home else 0))
        if chosen != receiver:
            load[chosen] += 1
        out.append(chosen)
    return out
