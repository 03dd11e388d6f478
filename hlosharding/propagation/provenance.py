"""Why a value is laid out as it is: every change of a run, and the chain of causes back to what the user wrote.

Floor: propagation.  Records and tells; decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hlosharding.sharding import HloSharding

Direction = Literal["operands", "users", "computation", "group", "annotation", "boundary"]


@dataclass(frozen=True, slots=True)
class Step:
    """One change: the instruction, what it had and what it has, whence, when."""

    instruction: int
    level: int
    direction: Direction
    sources: tuple[int, ...]
    old: HloSharding | None
    new: HloSharding | None


@dataclass
class Trail:
    """All changes of a run, in order."""

    steps: list[Step] = field(default_factory=list)

    def note(
        self,
        instruction: int,
        level: int,
        direction: Direction,
        sources: list[int],
        old: HloSharding | None,
        new: HloSharding | None,
    ) -> None:
        """Remember one change."""
        self.steps.append(Step(instruction, level, direction, tuple(dict.fromkeys(sources)), old, new))
