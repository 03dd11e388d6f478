"""The pieces that a reshard is made of, and who sends them: every device gets exactly what it lacks, from who holds it.

Floor: reshard.  Knows layouts; nothing of axes.  Works for any tiling and any device order, even or not.

Tile edges of source and target cut the array into pieces (along a dim they repeat with the least common multiple of
the tile sizes); a piece that lies in a device's target tile comes from its own source tile, or from one of the holders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlosharding.cost import Machine
from hlosharding.once import remembered
from hlosharding.reshard.layout import Dims, Layout, Table
from hlosharding.reshard.piecewise.regions import Region, WantedPieces, count_of, pieces_of

MOST_PIECES = 8_000
"""For what a plan takes to make: with half of it plans are the same, with double one moves 0.997 of its bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class PieceMoves:
    """Which box goes from where to where; row i of each table is piece i.  A piece may stay where it is."""

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
    padded_sizes: Table
    """[piece, dim]: sizes with the padding that may come along, so that pieces are more alike."""
    is_padded: bool = False
    """Are those its sizes?"""

    @property
    def num_devices(self) -> int:
        return self.target.num_devices

    @property
    def travels(self) -> Table:
        """[piece]: does it go to another device?"""
        return self.senders != self.receivers

    def with_padding(self) -> PieceMoves:
        """The same with the padding that may come along."""
        return replace(self, sizes=self.padded_sizes, is_padded=True)

    def scale(self, block: Dims, source: Layout, target: Layout) -> PieceMoves:
        """The same pieces of an array that has such a block of elements wherever this one has an element."""
        read, write, sizes, padded_sizes = (
            table * np.asarray(block, np.int64) for table in (self.read, self.write, self.sizes, self.padded_sizes)
        )
        return replace(
            self,
            target=target,
            tiles=(source.tile,),
            regions=tuple(Region.whole(source.dims) for _ in self.regions),
            read=read,
            write=write,
            sizes=sizes,
            padded_sizes=padded_sizes,
        )

    def busiest(self, pieces: Sequence[int] | Table) -> int:
        """The most of these pieces that one device sends, or receives."""
        if not len(pieces):
            return 0
        return int(max(np.bincount(self.senders[pieces]).max(), np.bincount(self.receivers[pieces]).max()))


def moves_between(
    source: Layout, target: Layout, machine: Machine, most: int | None = MOST_PIECES
) -> PieceMoves | None:
    """The pieces from one layout to another; None if there are more than `most`.

    Six devices, 2 x 3 tiles to 3 x 2: of the six elements it wants, a device lacks four on average.

    >>> from hlosharding.cost import machines
    >>> from hlosharding.reshard.layout import layout_of
    >>> from hlosharding.sharding import HloSharding
    >>> a, b = HloSharding.parse("{devices=[2,3]<=[6]}"), HloSharding.parse("{devices=[3,2]<=[6]}")
    >>> moves = moves_between(layout_of(a, (6, 6), 6), layout_of(b, (6, 6), 6), machines.h100(6))
    >>> int(moves.sizes[moves.travels].prod(axis=1).sum()) / 6
    4.0
    """
    return moves_of_regions((Region.whole(source.dims),), (source,), target, machine, most)


def moves_of_regions(
    regions: tuple[Region, ...],
    sources: Sequence[Layout],
    target: Layout,
    machine: Machine,
    most: int | None = MOST_PIECES,
) -> PieceMoves | None:
    """The pieces with which every device has its tile of what `regions` make of several operands."""
    found = _wanted(regions, sources, target, most)
    if found is None:
        return None
    tiles = tuple(source.tile for source in sources)
    if not found:
        none, empty = np.zeros(0, np.int64), np.zeros((0, len(target.dims)), np.int64)
        return PieceMoves(target, tiles, machine, (), (), none, none, none, empty, empty, empty, empty)
    return PieceMoves(
        target,
        tiles,
        machine,
        regions,
        tuple(dict.fromkeys((region.operand, region.turned) for region in regions)),
        np.repeat(np.arange(len(found)), [len(part.receivers) for part in found]),
        _senders(found, machine),
        np.concatenate([part.receivers for part in found]),
        np.concatenate([part.read for part in found]),
        np.concatenate([part.write for part in found]),
        np.concatenate([part.sizes for part in found]),
        np.concatenate([part.padded_sizes for part in found]),
    )


def _wanted(
    regions: tuple[Region, ...], sources: Sequence[Layout], target: Layout, most: int | None
) -> list[WantedPieces] | None:
    """The pieces of each region; None if they are more than `most`."""
    found: list[WantedPieces] = []
    left = most
    for region in regions:
        source = sources[region.operand]
        if left is not None:
            # Counted before they are made: that takes as long as there are tiles, and far too many pieces are never
            # made.
            left -= count_of(region, source, target)
            if left < 0:
                return None
        found.append(pieces_of(region, source, target))
    return found


# Who sends


def _senders(wanted: Sequence[WantedPieces], machine: Machine) -> Table:
    """A sender for each piece: the receiver itself, else the least busy holder, near before far."""
    if all(len(row) == 1 for part in wanted for row in part.holders):
        return np.concatenate([np.array(part.holders)[part.tiles, 0] for part in wanted])
    receivers = [receiver for part in wanted for receiver in part.receivers.tolist()]
    holders = [(number, tile) for number, part in enumerate(wanted) for tile in part.tiles.tolist()]
    last = max((d for part in wanted for row in part.holders for d in row), default=0)
    choice = _SenderChoice(
        [part.holders for part in wanted],
        [machine.node_of(device) for device in range(max(last, max(receivers, default=0)) + 1)],
        far=1 + len(receivers) // max(1, len(set(receivers))),
    )
    pairs = zip(receivers, holders, strict=True)
    return np.array([choice.sender(receiver, *tile) for receiver, tile in pairs], np.int64)


class _SenderChoice:
    """Spreads the sending over holders, in the order in which pieces are asked for."""

    def __init__(self, holders: list[list[list[int]]], node: list[int], far: int) -> None:
        self.holders, self.node, self.far = holders, node, far
        """[region][tile]: devices that hold it; [device]: its node; how much busier a device of another node counts:
        as much as all that a receiver gets on average."""
        self.load = [0] * len(node)

    def sender(self, receiver: int, region: int, tile: int) -> int:
        """Who sends a tile of a region to `receiver`; counted."""
        chosen = self._chosen(receiver, region, tile)
        if chosen != receiver:
            self.load[chosen] += 1
        return chosen

    def _chosen(self, receiver: int, region: int, tile: int) -> int:
        having = self.holders[region][tile]
        if len(having) == 1:
            return having[0]
        if receiver in having:
            return receiver
        least, home = min(having, key=self.load.__getitem__), self.node[receiver]
        if self.node[least] == home:
            return least
        # Near ones stand first, so that they win a tie.
        near = self._near_holders(region, tile, home)
        return min((*near, least), key=lambda d: self.load[d] + (self.far if self.node[d] != home else 0))

    @remembered
    def _near_holders(self, region: int, tile: int, home: int) -> list[int]:
        return [d for d in self.holders[region][tile] if self.node[d] == home]
