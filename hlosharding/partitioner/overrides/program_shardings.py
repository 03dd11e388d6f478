"""What every proposer of other shardings looks at.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hlosharding.ir import Module
from hlosharding.partitioner.prices import Prices
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class ProgramShardings:
    """A program, how its values lie so far, and what may not change."""

    module: Module
    shardings: Mapping[int, HloSharding]
    """By instruction id; nothing for those that may take any."""
    annotated: frozenset[str]
    """Names of the instructions that the user annotated: they keep their shardings."""
    num_partitions: int
    prices: Prices


Proposer = Callable[[ProgramShardings], Mapping[int, HloSharding]]
"""By instruction id, the other shardings that some values should have; empty where that promises nothing."""
