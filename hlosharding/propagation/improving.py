"""May a new sharding replace the one an instruction has?  XLA's ReturnImprovedSharding, for arrays and tuples.

Floor: propagation.  Knows two shardings and a shape; nothing of ops or levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from hlosharding.ir import Shape
from hlosharding.sharding import (
    HloSharding,
    is_more_specific,
    is_strictly_better,
    is_subtiling_or_equal,
    merge_sharding,
)


def improve(
    old: HloSharding | None, new: HloSharding, shape: Shape, *, combine: bool, aggressive: bool = False
) -> HloSharding | None:
    """What an instruction of that shape with sharding `old` takes when offered `new`; None: it stays as it is.

    `combine` lets two partial tilings merge into a finer one; `aggressive` drops the demand that a sharding with
    more tiles lies within the old one.

    >>> half, other = map(HloSharding.parse, ("{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"))
    >>> improve(None, half, Shape.array("f32", (4, 4)), combine=True) is half
    True
    >>> improve(half, other, Shape.array("f32", (4, 4)), combine=True) is None
    True
    """
    if old is new:
        return None
    if old is not None and is_strictly_better(new, old):
        return new
    if not new.is_spatially_partitioned():
        return None
    if old is None:
        return new
    if new.is_manual():
        return None
    if new.is_tuple():
        leaves = _merged_leaves(old.tuple_elements, new.tuple_elements, combine)
        return HloSharding.tuple(leaves) if leaves is not None else None
    better, merged = merge_sharding(old, new, combine)
    if not better:
        return None
    # A tiling that merely has more tiles than the old one must lie within it, or data would move for nothing.
    unmerged = merged.num_tiles == new.num_tiles
    if not aggressive and shape.is_array and not old.is_tile_maximal() and unmerged:
        return merged if is_subtiling_or_equal(shape.dims, merged, old) else None
    return merged


def improved_leaves(
    old: Sequence[HloSharding], new: list[HloSharding], rest_is_manual: bool, *, combine: bool
) -> list[HloSharding] | None:
    """`improve` where some leaves of a tuple are offered others, partitioned ones among them; None: all stay.

    `rest_is_manual`: are all its other leaves manual?
    """
    pairs = list(zip(new, old, strict=True))
    if any(is_strictly_better(a, b) for a, b in pairs) and not any(is_strictly_better(b, a) for a, b in pairs):
        return new
    # With these leaves the whole tuple would be manual, and `improve` refuses that of a whole tuple.
    if rest_is_manual and all(leaf.is_manual() for leaf in new):
        return None
    return _merged_leaves(old, new, combine)


def _merged_leaves(old: Sequence[HloSharding], new: Sequence[HloSharding], combine: bool) -> list[HloSharding] | None:
    """Leaf by leaf, with no demand on sub-tilings; the new leaves stand where merging changed nothing."""
    improved = False
    leaves: list[HloSharding] = []
    for before, after in zip(old, new, strict=True):
        if before is not after:
            better, after = merge_sharding(before, after, combine)
            improved |= better
        leaves.append(after)
    return leaves if improved else None


LookAhead = Callable[[], HloSharding | None]
"""The sharding that the users ahead would like; asked only where operands tie."""


class Receiver:
    """An instruction under inference: its sharding so far, and which sources changed it."""

    __slots__ = ("combine", "look_ahead", "shape", "sharding", "sources")

    def __init__(self, shape: Shape, sharding: HloSharding | None, combine: bool, look_ahead: LookAhead) -> None:
        self.shape, self.sharding, self.combine, self.look_ahead = shape, sharding, combine, look_ahead
        self.sources: list[int] = []

    def improve(self, new: HloSharding, source: int, *, aggressive: bool = False) -> None:
        """Take `new`, which came from operand `source`, if it improves."""
        better = improve(self.sharding, new, self.shape, combine=self.combine, aggressive=aggressive)
        if better is not None:
            self.set(better, source)

    def improve_leaf(self, new: HloSharding, leaf: int, source: int, *, aggressive: bool = False) -> None:
        """Improve one element of a tuple; a tuple without sharding counts as replicated then."""
        if not self.shape.is_tuple:
            return self.improve(new, source, aggressive=aggressive)
        old = None if self.sharding is None else self.sharding.leaf(leaf)
        shape = self.shape.tuple_shapes[leaf]
        better = improve(old, new, shape, combine=self.combine, aggressive=aggressive)
        if better is None:
            return None
        whole = self.sharding or HloSharding.single_tuple(HloSharding.replicate(), len(self.shape.leaves))
        return self.set(whole.with_leaf(leaf, better), source)

    def set(self, new: HloSharding, source: int) -> None:
        """Take `new` whatever was there."""
        self.sharding = new
        self.sources.append(source)


def partitioned(shardings: Iterable[HloSharding | None]) -> Iterator[tuple[int, HloSharding]]:
    """The partitioned ones of operands, by position."""
    return ((n, s) for n, s in enumerate(shardings) if s is not None and s.is_spatially_partitioned())


def best_operand(shardings: list[HloSharding | None]) -> int | None:
    """The first operand that no later one beats, of those that have a sharding."""
    best: int | None = None
    for n, sharding in enumerate(shardings):
        if sharding is None:
            continue
        held = None if best is None else shardings[best]
        if held is None or is_more_specific(sharding, held):
            best = n
    return best
