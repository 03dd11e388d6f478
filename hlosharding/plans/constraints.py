"""The fewest `with_sharding_constraint` lines with which XLA lays values out as a plan does.

Floor: plans.  Tried by propagating as XLA does; what has no expression or no PartitionSpec is said, not dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hlosharding.errors import ShardingError
from hlosharding.frontends import is_inserted
from hlosharding.ir import Instruction
from hlosharding.plans.replicated import is_held
from hlosharding.plans.source_places import SourcePlace, expression, places
from hlosharding.plans.wanted import Leaves, WantedShardings
from hlosharding.sharding import HloSharding, MeshInfo, spell

_MOST_TRIALS = 60
_MOST_INSTRUCTIONS = 200_000
"""Propagated in all trials, each of which propagates the whole program: some ten seconds."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A line to write: the expression at `location` gets a sharding."""

    location: str
    """ "file.py:31"."""
    expression: str
    """Its source; "" where that cannot be read."""
    spec: Any
    """The PartitionSpec."""
    values: tuple[Instruction, ...]
    """Those that the expression makes; one in each call of its function."""

    @property
    def shape(self) -> str:
        """Of its value."""
        return str(self.values[0].shape)


@dataclass(frozen=True, slots=True)
class Constraints:
    """What is to be written, and what cannot be."""

    lines: tuple[Constraint, ...]
    unsaid: tuple[str, ...]
    """Values that XLA will lay out otherwise, and why no line says it."""


def constraints(wanted: WantedShardings, inputs: Leaves, outputs: Leaves, mesh: MeshInfo) -> Constraints:
    """Of a program whose edge XLA is told, `inputs` and `outputs`."""
    own = (inst for inst in wanted.source.instructions if is_held(inst) and not is_inserted(inst))
    every = [inst for inst in own if _is_layout(wanted.shardings, inst)]

    def unreached(lines: Sequence[Constraint]) -> list[Instruction]:
        return wanted.unreached(wanted.stock(inputs, outputs, values_of(lines)), every)

    apart = unreached(())
    if not apart:
        return Constraints((), ())
    question = _ConstraintProblem(wanted, mesh, places(wanted.source))
    candidates = question.lines(apart)
    # Some values no line reaches: as many may stay as with all lines.
    least = len(unreached(candidates))
    most = max(8, min(_MOST_TRIALS, _MOST_INSTRUCTIONS // len(wanted.source.instructions)))
    lines = smallest(candidates, lambda part: len(unreached(part)) <= least, most)
    lines.sort(key=lambda line: line.values[0].id)
    return Constraints(tuple(lines), tuple(question.reasons(unreached(lines))))


def _is_layout(shardings: Mapping[str, HloSharding], inst: Instruction) -> bool:
    """Is there something that XLA's propagation could say, too?  Partial sums are the partitioner's."""
    found = shardings.get(inst.name)
    return found is not None and not found.is_unreduced() and not found.is_unreduced_subgroup()


def values_of(lines: Sequence[Constraint]) -> list[Instruction]:
    """All that they constrain."""
    return [inst for line in lines for inst in line.values]


@dataclass(frozen=True, slots=True)
class _ConstraintProblem:
    wanted: WantedShardings
    mesh: MeshInfo
    at: Mapping[SourcePlace, Sequence[Instruction]]

    def lines(self, apart: Sequence[Instruction]) -> list[Constraint]:
        """One for each expression that makes one of these values, where a line can say what is wanted of it."""
        asked = set(apart)
        found: list[Constraint] = []
        for place, values in self.at.items():
            said = self._said(values)
            if asked.intersection(values) and not isinstance(said, str):
                source = expression(place) if self.wanted.source.signature is not None else ""
                found.append(Constraint(str(place), source, said, tuple(values)))
        # Left out are the last ones first: what the user named stays.
        return sorted(found, key=lambda line: not any(self.wanted.source.sharding(inst) for inst in line.values))

    def _said(self, values: Sequence[Instruction]) -> Any:
        """The PartitionSpec of all of them, or a text: why there is none."""
        shardings = {self.wanted.shardings[inst.name] for inst in values}
        if len(shardings) > 1:
            return f"its expression makes {len(values)} values that are to be laid out differently"
        return spec_of(shardings.pop(), self.mesh)

    def reasons(self, left: Sequence[Instruction]) -> Iterator[str]:
        """What XLA will do otherwise, and why no line says it, a text for each line of the source."""
        place_of = {inst: values for values in self.at.values() for inst in values}
        told: Counter[tuple[str, str]] = Counter()
        for inst in left:
            said = self._said(place_of[inst]) if inst in place_of else "no expression of its own makes it"
            wanted = spell(self.wanted.shardings[inst.name], self.mesh)
            why = said if isinstance(said, str) else "XLA reaches it with no line"
            told[inst.location or "no line", f"{inst.opcode} {inst.shape} as {wanted}: {why}"] += 1
        yield from (f"{at}: {why}{f' ({times} times)' if times > 1 else ''}" for (at, why), times in told.items())


def spec_of(sharding: HloSharding, mesh: MeshInfo) -> Any:
    """The PartitionSpec, without dims at its end that are not split, or a text: why there is none."""
    try:
        spec = sharding.to_partition_spec(mesh)
    except ShardingError as error:
        return f"no PartitionSpec says it: {error.what}"
    entries = list(spec.partitions)
    while entries and entries[-1] is None:
        entries.pop()
    return type(spec)(*entries, unreduced=spec.unreduced) if spec.unreduced else type(spec)(*entries)


# ---- as few as do

Item = TypeVar("Item")


def smallest(items: Sequence[Item], does: Callable[[Sequence[Item]], bool], most: int) -> list[Item]:
    """Of `items`, which do, a part of which no single one can be left out; after `most` questions what is found so far.

    >>> smallest(range(10), lambda part: {2, 7} <= set(part), most=100)
    [2, 7]
    """
    kept, asked, size = list(items), 0, len(items)
    while size and kept:
        start = len(kept)
        while start > 0 and asked < most:
            start -= size
            # The chunk at the beginning may be a shorter one: `start` is below 0 then.
            part = kept[: max(0, start)] + kept[max(0, start) + min(size, size + start) :]
            asked += 1
            if does(part):
                kept = part
        size //= 2
    return kept
