"""Halo exchange: give each device the elements along one dim that its window needs, beyond its own tile too.

Floor: partitioner.  Strips travel between neighbours by collective permutes, one per direction and distance, no more
than is needed; what lies outside the array is filled.  Works for uneven tiles, for several hops and for negative
padding.

    tiles                  0 1 2 3|4 5 6 7|8 9 ...
    device 1 receives            3          8         one strip from the left, one from the right
    joins                       [3 4 5 6 7 8]
    and cuts out `count` elements from its own start on
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hlosharding.ir import Instruction, WindowDim
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Emitter, inside


class Strip(NamedTuple):
    """Elements at the edge of a tile that another tile's device may need."""

    distance: int
    """How many tiles further the device is that needs them."""
    size: int
    readers: frozenset[int]
    """Tiles whose devices need some of them."""


@dataclass(frozen=True, slots=True)
class HaloPlan:
    """What one windowed dim needs: the device of tile t computes its results from `count` elements at `starts[t]`."""

    tile: int
    """Elements of the operand a device holds."""
    starts: tuple[int, ...]
    """Per tile the first element of the operand that is taken; may lie before the array."""
    count: int
    needed: tuple[tuple[int, int], ...]
    """Per tile the first element inside the array that is needed, and one past the last; equal for no results."""
    window: WindowDim
    """The local window: what of the padding is left once elements outside the array are filled in."""
    lags: tuple[int, ...] = ()
    """Per tile how many results too early it begins; they are to be cut off."""

    @property
    def left(self) -> int:
        """The most elements that anyone needs from before its tile: what all have room for."""
        return max([0, *(t * self.tile - low for t, (low, high) in enumerate(self.needed) if low < high)])

    @property
    def right(self) -> int:
        """Likewise from behind it."""
        return max([0, *(high - (t + 1) * self.tile for t, (low, high) in enumerate(self.needed) if low < high)])

    @property
    def is_far(self) -> bool:
        """Is so much needed that the dim is better whole?"""
        return self.left + self.right > self.tile * (len(self.starts) - 1)

    @property
    def received(self) -> float:
        """Elements a device receives, mean over the tiles."""
        total = sum(strip.size * len(strip.readers) for side in (-1, 1) for strip in self.strips(side))
        return total / len(self.starts)

    @property
    def messages(self) -> int:
        """Strips that anyone receives."""
        return sum(bool(strip.readers) for side in (-1, 1) for strip in self.strips(side))

    def strips(self, side: int) -> list[Strip]:
        """The strips from one side (-1: from tiles before), nearest first.

        >>> HaloPlan(2, (0, 1, 3), 3, ((0, 2), (1, 4), (3, 6)), WindowDim(3)).strips(-1)
        [Strip(distance=1, size=1, readers=frozenset({1, 2}))]
        """
        found: list[Strip] = []
        amount, distance = self.left if side < 0 else self.right, 1
        while amount > 0:
            size = min(amount, self.tile)
            tiles = range(len(self.needed))
            readers = frozenset(t for t in tiles if self._reads(t, t + side * distance, side, size))
            found.append(Strip(distance, size, readers))
            amount, distance = amount - size, distance + 1
        return found

    def _reads(self, tile: int, other: int, side: int, size: int) -> bool:
        """Does a tile need any of the `size` elements at the near edge of another one?"""
        if not 0 <= other < len(self.needed):
            return False
        start = (other + 1) * self.tile - size if side < 0 else other * self.tile
        low, high = self.needed[tile]
        return max(low, start) < min(high, start + size)


@dataclass(frozen=True, slots=True)
class FactorTiles:
    """Which tile of a split factor each device computes, and which device computes the next one."""

    space: HloSharding
    """The split of all factors of the op."""
    factor: int
    numbers: tuple[int, ...]
    """Per device."""

    def pairs(self, distance: int, readers: frozenset[int]) -> tuple[tuple[int, int], ...]:
        """(source, target) where the source's tile lies `distance` further, for the tiles `readers`.

        All other factors are the same: a device may hold only its part of what others hold whole.
        """
        return _pairs(self.space, self.factor, distance, readers)


@lru_cache(maxsize=1 << 12)
def _pairs(space: HloSharding, factor: int, distance: int, readers: frozenset[int]) -> tuple[tuple[int, int], ...]:
    tiles = np.moveaxis(space.tiles.array, factor, 0)
    pairs: list[tuple[int, int]] = []
    for tile in sorted(readers):
        if 0 <= tile + distance < len(tiles):
            sources, targets = tiles[tile + distance].reshape(-1), tiles[tile].reshape(-1)
            pairs += zip(map(int, sources), map(int, targets), strict=True)
    return tuple(pairs)


@dataclass(frozen=True, slots=True)
class HaloExchange:
    """One exchange along one dim of an operand."""

    dim: int
    size: int
    """Of the dim, of the whole array."""
    is_split: bool
    """Is the operand split along the dim?  If it is whole nothing is sent."""
    plan: HaloPlan
    tiles: FactorTiles
    fill: Any
    """What places outside the array hold."""


def exchange_halo(emitter: Emitter, x: Instruction, halo: HaloExchange) -> Instruction:
    """`x` with the dim replaced by the elements that each device's window needs."""
    dim, plan, tiles = halo.dim, halo.plan, halo.tiles.numbers
    starts = tuple(plan.starts[t] for t in tiles)
    if halo.is_split:
        with emitter.because("halo"):
            before, behind = (_received(emitter, x, halo, side) for side in (-1, 1))
        joined = emitter.concatenate([*reversed(before), x, *behind], dim)
        offsets = [start - t * plan.tile + plan.left for start, t in zip(starts, tiles, strict=True)]
    else:
        joined, offsets = x, list(starts)
    # Offsets count in what a device holds; what begins or ends outside of that is padded for.
    low = max(0, -min(offsets))
    high = max(0, max(offsets) + plan.count - joined.shape.dims[dim])
    padding = [[amount if d == dim else 0 for d in range(x.shape.rank)] for amount in (low, high)]
    joined = emitter.pad(joined, padding[0], padding[1], halo.fill)
    needed = cut_out(emitter, joined, dim, [o + low for o in offsets], plan.count)
    return _filled(emitter, needed, halo, starts)


def _received(emitter: Emitter, x: Instruction, halo: HaloExchange, side: int) -> list[Instruction]:
    """The strips from one side, nearest first; only devices that need one receive it."""
    found: list[Instruction] = []
    dim, tile = halo.dim, halo.plan.tile
    for distance, size, readers in halo.plan.strips(side):
        starts, limits = [0] * x.shape.rank, list(x.shape.dims)
        starts[dim], limits[dim] = (tile - size, tile) if side < 0 else (0, size)
        strip = emitter.slice(x, starts, limits)
        # Where nobody reads a strip, the device's own elements keep its place.
        pairs = halo.tiles.pairs(side * distance, readers)
        found.append(emitter.collective_permute(strip, pairs) if pairs else strip)
    return found


def cut_out(emitter: Emitter, x: Instruction, dim: int, offsets: list[int], count: int) -> Instruction:
    """`count` elements along `dim` from each device's own offset on."""
    sizes = tuple(count if d == dim else s for d, s in enumerate(x.shape.dims))
    if len(set(offsets)) == 1:
        starts = [offsets[0] if d == dim else 0 for d in range(x.shape.rank)]
        return emitter.slice(x, starts, [s + n for s, n in zip(starts, sizes, strict=True)])
    zero = emitter.per_device((0,) * emitter.num_partitions)
    places = [emitter.per_device(offsets) if d == dim else zero for d in range(x.shape.rank)]
    return emitter.dynamic_slice(x, places, sizes)


def _filled(emitter: Emitter, x: Instruction, halo: HaloExchange, starts: tuple[int, ...]) -> Instruction:
    """`x`, which begins at place `starts[device]`, with `fill` where a place lies outside the array."""
    dim, count = halo.dim, x.shape.dims[halo.dim]
    value = emitter.full(halo.fill, x.shape)
    if any(s + count > halo.size for s in starts):
        x = emitter.select(inside(emitter, x.shape, dim, starts, halo.size), x, value)
    if any(s < 0 for s in starts):
        before = inside(emitter, x.shape, dim, starts, 0)
        x = emitter.select(before, value, x)
    return x
