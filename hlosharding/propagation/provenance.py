"""Why a value is laid out as it is: every change of a run, and the chain of causes back to what the user wrote.

Floor: propagation.  Records and tells; decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Literal

from hlosharding.sharding import HloSharding

Direction = Literal["operands", "users", "computation", "group", "annotation", "boundary"]

_WORDS: dict[Direction, str] = {
    "operands": "from its operand",
    "users": "from its user",
    "computation": "same value as",
    "group": "in one shard group with",
    "annotation": "from the annotation on its user",
    "boundary": "put back at the edge of the program",
}
_SHOWN = 12
_REASONS = 6


def is_split(sharding: HloSharding | None) -> bool:
    """Does any device lack part of the value?"""
    return sharding is not None and any(leaf.num_tiles > 1 for leaf in sharding.leaves)


@dataclass(frozen=True, slots=True)
class Step:
    """One change: the instruction (by id), what it had and has, whence, and when (level -1: before the first)."""

    instruction: int
    level: int
    direction: Direction
    sources: tuple[int, ...]
    old: HloSharding | None
    new: HloSharding | None


Change = tuple[int, int, Direction, Sequence[int], HloSharding | None, HloSharding | None]
"""The fields of a `Step`."""


class Trail:
    """All changes of a run, in order."""

    def __init__(self) -> None:
        self._pending: list[Iterable[Change]] = []
        self._steps: list[Step] = []

    @property
    def steps(self) -> list[Step]:
        """Every change."""
        for changes in self._pending:
            self._steps += [Step(i, level, way, tuple(by), old, new) for i, level, way, by, old, new in changes]
        self._pending.clear()
        return self._steps

    def note_all(self, changes: Iterable[Change]) -> None:
        """Remember many changes; they are read when somebody asks for the first time, which is seldom."""
        self._pending.append(changes)

    @cached_property
    def _by_instruction(self) -> dict[int, list[int]]:
        numbers: dict[int, list[int]] = {}
        for number, step in enumerate(self.steps):
            numbers.setdefault(step.instruction, []).append(number)
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
        self._pending.append(((instruction, level, direction, sources, old, new),))

    def last(self, instruction: int, before: int | None = None) -> int | None:
        """The number of the last step of an instruction (before step `before`); None: it had its sharding all along."""
        numbers = self._by_instruction.get(instruction, [])
        place = len(numbers) if before is None else bisect_left(numbers, before)
        return numbers[place - 1] if place else None

    def chain(self, instruction: int) -> list[Step]:
        """From the last change of an instruction, cause by cause, to an instruction that had its sharding all along."""
        steps: list[Step] = []
        number = self.last(instruction)
        wanted: HloSharding | None = None
        while number is not None:
            step = self.steps[number]
            source = self._cause(step, number, wanted)
            steps.append(step if source is None else replace(step, sources=_last(step.sources, source)))
            if step.new is not None and not step.new.is_tuple():
                wanted = step.new
            number = None if source is None else self.last(source, number)
        return steps

    def _cause(self, step: Step, number: int, wanted: HloSharding | None) -> int | None:
        """Of several sources the last one: it completed the sharding.  Of a tuple's, one with the leaf in question."""
        if not step.sources:
            return None
        if wanted is not None and step.new is not None and step.new.is_tuple():
            for source in reversed(step.sources):
                before = self.last(source, number)
                held = None if before is None else self.steps[before].new
                if held is not None and wanted in held.leaves:
                    return source
        return step.sources[-1]


def _last(sources: tuple[int, ...], last: int) -> tuple[int, ...]:
    return (*(s for s in sources if s != last), last)


@dataclass(frozen=True, slots=True)
class Link:
    """One instruction in a chain of causes."""

    name: str
    opcode: str
    location: str
    """file:line of the user's code; of a parameter, the argument's path; "" where neither is known."""
    sharding: HloSharding | None
    direction: Direction | None
    """Where the sharding came from; None: it is what the user wrote."""
    level: int
    also: tuple[str, ...] = ()
    """Other instructions that contributed to the same change."""

    def __str__(self) -> str:
        where = f" at {self.location}" if self.location else ""
        return f"%{self.name} ({self.opcode}{where}) {'no sharding' if self.sharding is None else self.sharding}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one instruction has its sharding.  `str` prints the chain of causes, the instruction first."""

    links: tuple[Link, ...]
    stopped: tuple[str, ...] = ()
    """Of a value that is not split: what kept each neighbour's tiling out."""

    @property
    def annotation(self) -> Link | None:
        """Where the chain ends: the instruction that the user (or a default) gave its sharding."""
        return self.links[-1] if self.links[-1].direction is None else None

    @property
    def lost(self) -> tuple[Link, Link] | None:
        """The first instruction on the chain that is not split though its cause is, and that cause."""
        pairs = zip(self.links, self.links[1:], strict=False)
        # An element of a tuple is not what the rest of the tuple is.
        whole = ((a, b) for a, b in pairs if a.opcode != "get-tuple-element")
        return next(((a, b) for a, b in whole if is_split(b.sharding) and not is_split(a.sharding)), None)

    def __str__(self) -> str:
        lines = [str(self.links[0])]
        hidden = len(self.links) - 1 - _SHOWN
        for n, (link, cause) in enumerate(zip(self.links, self.links[1:], strict=False)):
            if hidden > 0 and _SHOWN - 4 <= n < _SHOWN - 4 + hidden:
                if n == _SHOWN - 4:
                    lines.append(f"  ... {hidden} more")
                continue
            lines.append(_line(link, cause))
        last = self.links[-1]
        if last.direction is None and last.sharding is not None:
            lines.append(f"  given by the user on %{last.name}" + (f" at {last.location}" if last.location else ""))
        return "\n".join([*lines, *self._reasons()])

    def _repr_html_(self) -> str:
        """For notebooks: the same lines, the value itself in bold."""
        first, *rest = map(escape, str(self).splitlines())
        return "<pre>" + "\n".join([f"<b>{first}</b>", *rest]) + "</pre>"

    def _reasons(self) -> list[str]:
        lines = [f"  not split: {reason}" for reason in self.stopped[:_REASONS]]
        if len(self.stopped) > _REASONS:
            lines.append(f"  ... {len(self.stopped) - _REASONS} more such neighbours")
        if self.stopped and self.lost is not None:
            here, cause = self.lost
            where = f" at {here.location}" if here.location else ""
            lines.append(f"  %{here.name} ({here.opcode}{where}) loses the split of %{cause.name}")
        return lines


def _line(link: Link, cause: Link) -> str:
    word = _WORDS[link.direction or "annotation"]
    level = f", level {link.level}" if link.level >= 0 else ""
    also = f" (and {', '.join('%' + name for name in link.also)})" if link.also else ""
    return f"  <- {word}{also}{level}: {cause}"
