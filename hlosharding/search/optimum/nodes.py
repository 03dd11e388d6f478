"""What a choice between shardings is made of: nodes, what moves between them, and what it comes to.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hlosharding.ir import Computation
from hlosharding.partitioner import OpSplit
from hlosharding.search.optimum.reshard_table import Integers, Numbers, Source
from hlosharding.sharding import HloSharding


@dataclass(eq=False)
class Node:
    """Something to choose."""

    compute: Numbers
    """[choice]: seconds."""
    placements: tuple[HloSharding, ...] = ()
    """Of values."""
    splits: tuple[OpSplit, ...] = ()
    """Of an op."""
    products: Numbers | float = 0.0
    """[choice]: those of the seconds in which the chip draws the most power."""

    def gives(self, leaf: int) -> Sequence[Source]:
        """[choice]: how the value lies, or comes out as an array of the op's result."""
        if self.splits:
            return [(split.results[leaf], split.reduce_kind) for split in self.splits]
        return [(place, None) for place in self.placements]

    def takes(self, operand: int) -> Sequence[HloSharding]:
        """[choice]: how the value lies, or the op wants an operand."""
        return [split.operands[operand] for split in self.splits] if self.splits else self.placements


class Weights(NamedTuple):
    """What seconds count beside those of communication for which devices wait."""

    compute: float
    hidden: float
    """Of communication that may run behind the computation."""


class Spent(NamedTuple):
    """Seconds of a step."""

    compute: float
    exposed: float
    """Of communication for which devices wait."""
    hidden: float
    """Of communication that may run behind the computation."""

    @property
    def least(self) -> float:
        """Were all hidden that may be."""
        return self.exposed + max(self.compute, self.hidden)


NOTHING = Spent(0.0, 0.0, 0.0)


class Behind(NamedTuple):
    """Communication that may run behind the computation, and as one: all that is fetched ahead of a computation, or all
    that is left to do of its results."""

    computation: Computation
    is_late: bool


class Edge(NamedTuple):
    """What moves between two nodes."""

    first: int
    second: int
    reshards: Integers
    """[choice of the first, of the second]: numbers in the table of reshards."""
    trips: int
    nbytes: int
    """Of the array, whole."""
    behind: Behind | None
    """Or do devices wait for it?"""
