"""Every change of a run: what it gave to whom, whence, and when.

Floor: propagation.  Records; decides nothing, and explains nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from hlosharding.sharding import HloSharding

Direction = Literal["operands", "users", "computation", "group", "annotation", "boundary"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change: the instruction (by id), what it had and has, whence, and when (level -1: before the first)."""

    instruction: int
    level: int
    direction: Direction
    sources: tuple[int, ...]
    old: HloSharding | None
    new: HloSharding | None


ChangeFields = tuple[int, int, Direction, Sequence[int], HloSharding | None, HloSharding | None]
"""The fields of a `Change`."""


class Trail:
    """All changes of a run, in order."""

    def __init__(self) -> None:
        self._deferred: list[Iterable[ChangeFields]] = []
        self._changes: list[Change] = []

    @property
    def changes(self) -> list[Change]:
        """Every change."""
        for changes in self._deferred:
            self._changes += [Change(i, level, way, tuple(by), old, new) for i, level, way, by, old, new in changes]
        self._deferred.clear()
        return self._changes

    def note_all(self, changes: Iterable[ChangeFields]) -> None:
        """Remember many changes; they are read when somebody asks for the first time, which is seldom."""
        self._deferred.append(changes)

    @cached_property
    def _by_instruction(self) -> dict[int, list[int]]:
        numbers: dict[int, list[int]] = {}
        for number, change in enumerate(self.changes):
            numbers.setdefault(change.instruction, []).append(number)
        return numbers

    def note(
        self,
        instruction: int,
        level: int,
        direction: Direction,
        sources: Sequence[int],
        old: HloSharding | None,
        new: HloSharding | None,
    ) -> None:
        """Remember one change."""
        self._deferred.append(((instruction, level, direction, sources, old, new),))

    def last(self, instruction: int, before: int | None = None) -> int | None:
        """The number of an instruction's last change (before change `before`); None: it had its sharding all along."""
        numbers = self._by_instruction.get(instruction, [])
        place = len(numbers) if before is None else bisect_left(numbers, before)
        return numbers[place - 1] if place else None
