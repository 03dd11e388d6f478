"""The steps of a function: lines, and calls of functions that stand for repeated stretches of lines.

Floor: executor.  Plans only; `source.py` writes the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

from hlosharding.executor.flow import Leaf, Line, Slot, Tree, Var, leaves
from hlosharding.executor.repeats import MIN_SAVING, Repeat, find_repeats
from hlosharding.executor.structure import Structure

NEARBY = 48
"""References over fewer lines than this are part of what makes two lines equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A function that is called several times: its parameters are slots, its results are values of its own lines."""

    parameters: tuple[Slot, ...]
    steps: tuple[Step, ...]
    results: tuple[Var, ...]
    lines: tuple[Line, ...]
    calls: int
    """How often it is called."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a shared function; results nobody uses are None."""

    shared: Shared
    arguments: tuple[Leaf, ...]
    results: tuple[Var | None, ...]

    @property
    def uses(self) -> list[Leaf]:
        return list(self.arguments)

    @property
    def defines(self) -> list[Var]:
        return [r for r in self.results if r is not None]


Step: TypeAlias = "Line | Call"


def plan(lines: Sequence[Line], live_out: Iterable[Leaf], structure: Structure) -> tuple[Step, ...]:
    """Lines with their repeated stretches turned into calls.  `live_out`: values that are used after the last line."""
    producer = {var: i for i, line in enumerate(lines) for var in line.defines}
    references = [_references(line, producer) for line in lines]
    used_by = _last_uses(lines, live_out)
    repeats = find_repeats(_keys(lines, references, structure), references, alive_before(lines, used_by))
    if not repeats:
        return tuple(lines)
    calls: dict[int, tuple[Call, int]] = {}
    for repeat in repeats:
        for start, call in _calls(lines, repeat, producer, used_by, structure):
            calls[start] = (call, repeat.length)
    return tuple(_merged(lines, calls))


def _merged(lines: Sequence[Line], calls: dict[int, tuple[Call, int]]) -> Iterator[Step]:
    place = 0
    while place < len(lines):
        if place in calls:
            call, length = calls[place]
            yield call
            place += length
        else:
            yield lines[place]
            place += 1


def _references(line: Line, producer: dict[Var, int]) -> tuple[tuple[int, int], ...]:
    found = []
    for leaf in line.uses:
        if isinstance(leaf, Var) and leaf in producer:
            found.append((producer[leaf], hash(leaf.path)))
        elif not isinstance(leaf, str):
            found.append((-1, 0))
    return tuple(found)


def _keys(lines: Sequence[Line], references: Sequence[tuple[tuple[int, int], ...]], structure: Structure) -> list[int]:
    numbers: dict[object, int] = {}
    keys = []
    for place, (line, reference) in enumerate(zip(lines, references, strict=True)):
        constants = tuple((i, leaf) for i, leaf in enumerate(line.uses) if isinstance(leaf, str))
        near = tuple(place - p if p >= 0 and place - p < NEARBY else 0 for p, _ in reference)
        key = (structure.instruction(line.inst), constants, near)
        keys.append(numbers.setdefault(key, len(numbers)))
    return keys


def _last_uses(lines: Sequence[Line], live_out: Iterable[Leaf]) -> dict[Leaf, int]:
    """The last line that uses each value; len(lines) for those that live on."""
    last: dict[Leaf, int] = {}
    for i, line in enumerate(lines):
        for leaf in line.uses:
            last[leaf] = i
    last.update((leaf, len(lines)) for leaf in live_out)
    return last


def _calls(
    lines: Sequence[Line], repeat: Repeat, producer: dict[Var, int], used_by: dict[Leaf, int], structure: Structure
) -> Iterator[tuple[int, Call]]:
    stretches = [lines[s : s + repeat.length] for s in repeat.starts]
    slots, body = _with_slots(stretches, repeat.starts, producer)
    outputs = sorted(
        {
            at
            for start, stretch in zip(repeat.starts, stretches, strict=True)
            for at in _outputs(stretch, start + repeat.length, used_by)
        }
    )
    results = tuple(body[i].defines[j] for i, j in outputs)
    steps = plan(body, results, structure) if repeat.length > MIN_SAVING else tuple(body)
    parameters = tuple(Slot(i, _var(key[0])) for key, i in slots.items())
    shared = Shared(parameters, steps, results, tuple(body), len(stretches))
    for number, (start, stretch) in enumerate(zip(repeat.starts, stretches, strict=True)):
        made = [stretch[i].defines[j] for i, j in outputs]
        kept = tuple(v if used_by.get(v, -1) >= start + repeat.length else None for v in made)
        yield start, Call(shared, tuple(key[number] for key in slots), kept)


def _outputs(stretch: Sequence[Line], end: int, used_by: dict[Leaf, int]) -> Iterator[tuple[int, int]]:
    for i, line in enumerate(stretch):
        for j, var in enumerate(line.defines):
            if used_by.get(var, -1) >= end:
                yield i, j


def _var(leaf: Leaf) -> Var:
    assert not isinstance(leaf, str)
    return leaf.var if isinstance(leaf, Slot) else leaf


def _with_slots(
    stretches: Sequence[Sequence[Line]], starts: Sequence[int], producer: dict[Var, int]
) -> tuple[dict[tuple[Leaf, ...], int], list[Line]]:
    """Number what comes from outside, a slot for each tuple of values over all stretches; and the first one's lines."""
    slots: dict[tuple[Leaf, ...], int] = {}
    body = []
    for place, line in enumerate(stretches[0]):
        others = [list(stretch[place].uses) for stretch in stretches]
        position = iter(range(len(others[0])))

        def substitute(tree: Tree, others: list[list[Leaf]] = others, position: Iterator[int] = position) -> Tree:
            if isinstance(tree, tuple):
                return tuple(substitute(part) for part in tree)
            at = next(position)
            if isinstance(tree, str) or (isinstance(tree, Var) and producer.get(tree, -1) >= starts[0]):
                return tree
            key = tuple(uses[at] for uses in others)
            return Slot(slots.setdefault(key, len(slots)), _var(tree))

        body.append(replace(line, operands=tuple(substitute(o) for o in line.operands)))
    return slots, body


def live_ranges(steps: Sequence[Step], result: Tree) -> dict[Leaf, int]:
    """The last step that uses each value; len(steps) for those in the result."""
    last: dict[Leaf, int] = {}
    for i, step in enumerate(steps):
        for leaf in step.uses:
            last[leaf] = i
    last.update((leaf, len(steps)) for leaf in leaves(result))
    return last


def alive_before(steps: Sequence[Step], last: Mapping[Leaf, int]) -> list[int]:
    """How many values made before each place are used at or after it."""
    change = [0] * (len(steps) + 2)
    for i, step in enumerate(steps):
        for var in step.defines:
            end = min(last.get(var, i), len(steps))
            if end > i:
                change[i + 1] += 1
                change[end + 1] -= 1
    return list(accumulate(change[: len(steps) + 1]))
