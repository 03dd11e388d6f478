"""What a choice between shardings is made of: nodes, what moves between them, and what it comes to.

Floor: search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hlosharding.partitioner import OpSplit
from hlosharding.search.optimum.reshard_table import Integers, Numbers
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


class Edge(NamedTuple):
    """What moves between two nodes."""

    first: int
    second: int
    reshards: Integers
    """[choice of the first, of the second]: numbers in the table of reshards."""
    trips: int
    is_hidden: bool
    """May it run behind the computation?"""
