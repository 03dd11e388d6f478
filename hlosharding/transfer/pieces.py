"""What has to move: pieces of arrays, those together that the same devices hold and the same devices lack.

Floor: transfer.  Knows tiles; nothing of links.

Tile edges of source and target cut an array into pieces.  Of each piece, some devices have it and others want it; how
much of all arrays goes from those to these is one `Demand`, however many layers repeat it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise, product
from typing import NamedTuple

import numpy as np

from hlosharding.reshard import Layout
from hlosharding.transfer.placed_arrays import ArrayKind, Dims

Box = tuple[tuple[int, int], ...]
"""Start and end along each dim."""


class TilePiece(NamedTuple):
    """The same box of each array of a kind."""

    kind: int
    count: int
    """Arrays of the kind."""
    box: Box
    nbytes: int
    """Of the box in one array."""

    @property
    def dim(self) -> int:
        """The dim along which it may be cut: the longest."""
        return max(range(len(self.box)), key=lambda d: self.box[d][1] - self.box[d][0], default=0)

    @property
    def rows(self) -> int:
        """Into how many parts it may be cut."""
        return self.box[self.dim][1] - self.box[self.dim][0] if self.box else 1

    def part(self, start: int, end: int) -> Box:
        """Some of its rows."""
        low = self.box[self.dim][0] if self.box else 0
        rows = (low + start, low + end)
        return tuple(rows if d == self.dim else sides for d, sides in enumerate(self.box))


@dataclass(frozen=True, eq=False)
class Demand:
    """What the same devices hold and the same others want.

    Its bytes count through: piece by piece, of a piece array by array, of an array row by row.
    """

    holders: Dims
    wanters: Dims
    """Those that are no holders."""
    pieces: list[TilePiece] = field(default_factory=list[TilePiece])

    @cached_property
    def starts(self) -> list[int]:
        """[piece]: its first byte; and the end of all."""
        return list(accumulate((piece.count * piece.nbytes for piece in self.pieces), initial=0))

    @property
    def nbytes(self) -> int:
        """That each wanter receives."""
        return self.starts[-1]

    def boxes(self, start: int, end: int) -> Iterator[tuple[int, int, Box]]:
        """(kind, number among the arrays of the kind, box) of what lies between two bytes, both at edges of rows.

        >>> demand = Demand((0,), (1,), [TilePiece(kind=7, count=2, box=((4, 8), (0, 2)), nbytes=32)])
        >>> list(demand.boxes(24, 48))
        [(7, 0, ((7, 8), (0, 2))), (7, 1, ((4, 6), (0, 2)))]
        """
        for piece, first in zip(self.pieces, self.starts, strict=False):
            low, high = max(start - first, 0), min(end - first, piece.count * piece.nbytes)
            row = piece.nbytes // piece.rows
            for number in range(low // piece.nbytes, -(-high // piece.nbytes)):
                begin = number * piece.nbytes
                rows = max(low - begin, 0) // row, min(high - begin, piece.nbytes) // row
                yield piece.kind, number, piece.part(*rows)

    def row_edge(self, byte: float) -> int:
        """The nearest byte at which rows may be cut."""
        # The end of all would be in a piece behind the last one.
        number = min(int(np.searchsorted(self.starts, byte, side="right")), len(self.pieces)) - 1
        piece, start = self.pieces[number], self.starts[number]
        row = piece.nbytes // piece.rows
        return start + round((byte - start) / row) * row


def demands_of(kinds: Sequence[ArrayKind], counts: Sequence[int]) -> list[Demand]:
    """All that has to move, of so many arrays of each kind.

    >>> from hlosharding.sharding import HloSharding
    >>> from hlosharding.transfer.placed_arrays import PlacedSide
    >>> rows = PlacedSide(HloSharding.parse("{devices=[2]<=[2]}"), (0, 1))
    >>> copies = PlacedSide(HloSharding.replicate(), (1, 2))
    >>> for demand in demands_of([ArrayKind((8,), np.dtype("f4"), rows, copies)], [3]):
    ...     print(demand.holders, demand.wanters, demand.nbytes)
    (0,) (1, 2) 48
    (1,) (2,) 48
    """
    found: dict[tuple[Dims, Dims], Demand] = {}
    for number, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
        holders, wanters = kind.source.holders(kind.dims), kind.target.holders(kind.dims)
        for have, want, box in _boxes(kind):
            key = holders[have], tuple(d for d in wanters[want] if d not in holders[have])
            if key[1]:
                nbytes = math.prod(end - start for start, end in box) * kind.dtype.itemsize
                found.setdefault(key, Demand(*key)).pieces.append(TilePiece(number, count, box, nbytes))
    return list(found.values())


def _boxes(kind: ArrayKind) -> Iterator[tuple[int, int, Box]]:
    """(tile of the source, tile of the target, what both have) of an array; empty ones left out."""
    source, target = kind.source.layout(kind.dims), kind.target.layout(kind.dims)
    for stretches in product(*(_cuts(source, target, dim) for dim in range(len(kind.dims)))):
        yield (
            sum(each.have for each in stretches),
            sum(each.want for each in stretches),
            tuple(s.sides for s in stretches),
        )


class _Stretch(NamedTuple):
    """Along a dim, between two tile edges."""

    sides: tuple[int, int]
    have: int
    """What its place adds to the number of the source's tile: they are in row-major order, as `holders` has them."""
    want: int
    """And to that of the target's."""


def _cuts(source: Layout, target: Layout, dim: int) -> list[_Stretch]:
    ranges = [layout.tiles_along(dim) for layout in (source, target)]
    edges = np.unique(np.concatenate([bound for both in ranges for bound in both]))
    tiles = [np.searchsorted(low, edges[:-1], side="right") - 1 for low, _ in ranges]
    steps = [math.prod(layout.counts[dim + 1 :]) for layout in (source, target)]
    have, want = ((each * step).tolist() for each, step in zip(tiles, steps, strict=True))
    return [_Stretch(*each) for each in zip(pairwise(edges.tolist()), have, want, strict=True)]
