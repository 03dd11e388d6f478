"""How a user wants a program partitioned.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hlosharding.errors import PartitionError
from hlosharding.reshard import check_objective

OVERLAPS = ("off", "auto", "always")
"""When products become loops: never, where the machine's prices say it is faster, wherever they can."""


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """How the partitioner decides.

    >>> PartitionOptions(overlap="auto").objective
    'time'
    """

    objective: str = "time"
    """What every choice minimises: "time", priced by the machine, or "bytes" received, the yardstick."""
    overlap: str = "off"
    """Whether matrix products that wait for an all-gather or a reduce-scatter become loops (collective matmul), which
    permute tiles while they multiply others: "off" never, "auto" where that is faster by simulation, of the product and
    of the program, "always" wherever they can.  The bytes are the same, and the gathered operand is never held."""
    only_propagated: bool = False
    """Do as GSPMD and frameworks do: follow propagation's shardings, look at no others, nor at several ops at once, and
    split an op only as its operands and result lie.  The program may move more bytes."""
    trips: Mapping[str, int] = field(default_factory=dict, hash=False)
    """How often loops run, by the name of the while instruction or by source line ("model.py:31"), where the program
    does not tell: it decides what is worth moving out of a loop, and is what costs are multiplied with."""
    dump_passes: Path | None = None
    """A folder that gets the text of the program before the passes that follow the walk, and after each of them; of
    several whole-program alternatives that are tried, the last one's."""

    def __post_init__(self) -> None:
        check_objective(self.objective)
        if self.overlap not in OVERLAPS:
            raise PartitionError(f"overlap is {self.overlap!r}", remedy=f"use one of {', '.join(OVERLAPS)}")
