"""Dims of a program that are one extent: joined where an op says so, cut where one is a multiple of another.

Floor: rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Extent:
    """A dim of a program, or a part of one, until it is found to be another's, or to have parts itself."""

    size: int
    _same: Extent | None = field(default=None, repr=False)
    _parts: tuple[Extent, ...] = field(default=(), repr=False)

    @property
    def parts(self) -> tuple[Extent, ...]:
        """What it consists of now, major to minor; of size 1 nothing."""
        if self._same is not None:
            return self._same.parts
        if self._parts:
            return tuple(part for one in self._parts for part in one.parts)
        return () if self.size == 1 else (self,)

    def cut(self, major: int) -> None:
        """In two, of which the first has this size."""
        self._parts = Extent(major), Extent(self.size // major)

    def become(self, other: Extent) -> None:
        """From now on it is that one."""
        self._same = other


def parts_of(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    """Those of a dim, or of several."""
    return tuple(part for extent in extents for part in extent.parts)


def join(first: Iterable[Extent], second: Iterable[Extent]) -> bool:
    """Make two lists that stand for one dim the same extents; False where they do not line up.

    >>> rows, halves = Extent(8), (Extent(2), Extent(4))
    >>> join([rows], halves), rows.parts == parts_of(halves)
    (True, True)
    >>> join([Extent(6)], [Extent(4)])
    False
    """
    left, right = list(first), list(second)
    while True:
        left, right = list(parts_of(left)), list(parts_of(right))
        while left and right and left[0] is right[0]:
            del left[0], right[0]
        if not (left and right):
            return left == right
        small, large = sorted((left[0], right[0]), key=lambda extent: extent.size)
        if small.size == large.size:
            large.become(small)
        elif small.size and large.size % small.size == 0:
            large.cut(small.size)
        else:
            return False
