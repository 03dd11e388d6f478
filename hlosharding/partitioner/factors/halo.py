"""Halo exchange: give each device a run of elements along one dim that starts and ends beyond its own tile.

Floor: partitioner.  Strips travel between neighbours by permutes, one per direction and distance, no more than is
needed; what lies outside the array is filled.  Works for uneven tiles, for several hops and for negative padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, Shape, WindowDim
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Emitter, inside


@dataclass(frozen=True, slots=True)
class HaloPlan:
    """What the pieces of one windowed dim need: piece p computes a result tile from `count` elements at `starts[p]`."""

    tile: int
    """Elements of the operand a device holds."""
    starts: tuple[int, ...]
    """First element of the operand each piece takes; may lie before the array."""
    count: int
    runs: tuple[tuple[int, int], ...]
    """Of each piece the first element inside the array that it needs, and one past the last; empty for no results."""
    window: WindowDim
    """The local window: what of the padding is left once elements outside the array are filled in."""
    lags: tuple[int, ...] = ()
    """Of each piece how many results too early it begins; they are to be cut off."""

    @property
    def left(self) -> int:
        """The most that any piece needs from before its tile: what all hold room for."""
        return max([0, *(p * self.tile - low for p, (low, high) in enumerate(self.runs) if low < high)])

    @property
    def right(self) -> int:
        """Likewise from behind it."""
        return max([0, *(high - (p + 1) * self.tile for p, (low, high) in enumerate(self.runs) if low < high)])

    @property
    def is_far(self) -> bool:
        """Do pieces need so much that the dim is better whole?"""
        return self.left + self.right > self.tile * (len(self.starts) - 1)

    @property
    def received(self) -> float:
        """Elements a device receives, mean over the pieces."""
        total = sum(size * len(wanting) for side in (-1, 1) for _, size, wanting in self.strips(side))
        return total / len(self.starts)

    @property
    def messages(self) -> int:
        """Strips that anyone receives."""
        return sum(bool(wanting) for side in (-1, 1) for _, _, wanting in self.strips(side))

    def strips(self, side: int) -> list[tuple[int, int, frozenset[int]]]:
        """(distance, elements, pieces that need some of them) of the strips from one side, nearest first.

        >>> HaloPlan(2, (0, 1, 3), 3, ((0, 2), (1, 4), (3, 6)), WindowDim(3)).strips(-1)
        [(1, 1, frozenset({1, 2}))]
        """
        found, amount, distance = [], self.left if side < 0 else self.right, 1
        while amount > 0:
            size = min(amount, self.tile)
            wanting = frozenset(p for p in range(len(self.runs)) if self._reads(p, p + side * distance, side, size))
            found.append((distance, size, wanting))
            amount, distance = amount - size, distance + 1
        return found

    def _reads(self, piece: int, other: int, side: int, size: int) -> bool:
        """Does a piece need any of the `size` elements at the near edge of another tile?"""
        if not 0 <= other < len(self.runs):
            return False
        start = (other + 1) * self.tile - size if side < 0 else other * self.tile
        low, high = self.runs[piece]
        return max(low, start) < min(high, start + size)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Which piece of a split factor each device computes, and who computes the next one."""

    space: HloSharding
    """The split of all factors of the op."""
    factor: int
    numbers: tuple[int, ...]
    """Per device."""

    def neighbours(self, distance: int, wanting: frozenset[int]) -> tuple[tuple[int, int], ...]:
        """(source, target) where the source's piece lies `distance` further, for the pieces `wanting`.

        All other factors are the same: a device may hold only its part of what others hold whole.
        """
        return _neighbours(self.space, self.factor, distance, wanting)


def fetch(
    emitter: Emitter,
    x: Instruction,
    shape: Shape,
    sharding: HloSharding,
    dim: int,
    plan: HaloPlan,
    pieces: Pieces,
    fill: Any,
) -> Instruction:
    """`x` with `dim` replaced by the run that each device's piece needs; places outside the array hold `fill`.

    `sharding` is that of `x`, whose `dim` is split like the pieces, or whole: then nothing is sent.
    """
    emitter.reason = "halo"
    starts = tuple(plan.starts[p] for p in pieces.numbers)
    if sharding.num_tiles_along(dim) > 1:
        before, behind = (_received(emitter, x, dim, plan, pieces, side) for side in (-1, 1))
        joined = emitter.concatenate([*reversed(before), x, *behind], dim)
        offsets = [start - p * plan.tile + plan.left for start, p in zip(starts, pieces.numbers, strict=True)]
    else:
        joined, offsets = x, list(starts)
    # Offsets are those of each device's run in what it holds; runs that begin or end outside are padded for.
    low = max(0, -min(offsets))
    high = max(0, max(offsets) + plan.count - joined.shape.dims[dim])
    padding = [[amount if d == dim else 0 for d in range(shape.rank)] for amount in (low, high)]
    joined = emitter.pad(joined, padding[0], padding[1], fill)
    run = cut(emitter, joined, dim, [o + low for o in offsets], plan.count)
    return _filled(emitter, run, dim, starts, shape.dims[dim], fill)


def _received(
    emitter: Emitter, x: Instruction, dim: int, plan: HaloPlan, pieces: Pieces, side: int
) -> list[Instruction]:
    """The strips from one side, nearest first; only pieces that need one receive it."""
    found = []
    for distance, size, wanting in plan.strips(side):
        starts, limits = [0] * x.shape.rank, list(x.shape.dims)
        starts[dim], limits[dim] = (plan.tile - size, plan.tile) if side < 0 else (0, size)
        strip = emitter.slice(x, starts, limits)
        # Where nobody reads a strip its place is kept by whatever is at hand.
        pairs = pieces.neighbours(side * distance, wanting)
        found.append(emitter.collective_permute(strip, pairs) if pairs else strip)
    return found


@lru_cache(maxsize=1 << 12)
def _neighbours(space: HloSharding, factor: int, distance: int, wanting: frozenset[int]) -> tuple[tuple[int, int], ...]:
    tiles = np.moveaxis(space.tiles.array, factor, 0)
    pairs: list[tuple[int, int]] = []
    for piece in sorted(wanting):
        if 0 <= piece + distance < len(tiles):
            sources, targets = tiles[piece + distance].reshape(-1), tiles[piece].reshape(-1)
            pairs += zip(map(int, sources), map(int, targets), strict=True)
    return tuple(pairs)


def cut(emitter: Emitter, x: Instruction, dim: int, offsets: list[int], count: int) -> Instruction:
    """`count` elements along `dim` from each device's own offset on."""
    sizes = tuple(count if d == dim else s for d, s in enumerate(x.shape.dims))
    if len(set(offsets)) == 1:
        starts = [offsets[0] if d == dim else 0 for d in range(x.shape.rank)]
        return emitter.slice(x, starts, [s + n for s, n in zip(starts, sizes, strict=True)])
    zero = emitter.per_device((0,) * emitter.num_partitions)
    places = [emitter.per_device(offsets) if d == dim else zero for d in range(x.shape.rank)]
    return emitter.dynamic_slice(x, places, sizes)


def _filled(emitter: Emitter, run: Instruction, dim: int, starts: tuple[int, ...], size: int, fill: Any) -> Instruction:
    count = run.shape.dims[dim]
    value = emitter.full(fill, run.shape)
    if any(s + count > size for s in starts):
        run = emitter.select(inside(emitter, run.shape, dim, starts, size), run, value)
    if any(s < 0 for s in starts):
        before = inside(emitter, run.shape, dim, starts, 0)
        run = emitter.select(before, value, run)
    return run
