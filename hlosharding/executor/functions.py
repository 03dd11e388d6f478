"""The steps of a function: lines, and calls of functions that stand for repeated stretches of lines.

Floor: executor.  Plans only; `source.py` writes the text.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TypeAlias

from hlosharding.executor.call_tree import Path
from hlosharding.executor.flow import CodeLine, Formal, Inline, Leaf, Var, with_leaves
from hlosharding.ir import Instruction, Sameness, layers

_MANY_ARGUMENTS, _MANY_RESULTS = 12, 4
"""More of them than this, and a function that is called once would be harder to read than its lines.  Half as many
leave out a quarter of the functions, twice as many add a quarter."""
NEARBY = 48
"""References over fewer lines than this are part of what makes two lines equal: without them hashes of stretches would
say less.  Half and double make programs 0.002 shorter."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A function that is called several times: its parameters are slots, its results are values of its own lines."""

    parameters: tuple[Formal, ...]
    steps: tuple[Step, ...]
    results: tuple[Var, ...]
    lines: tuple[CodeLine, ...]
    calls: int
    """How often it is called."""
    name: str = ""
    """The user's function that it is; "" for what was found to be repeated."""
    key: object = None
    """Equal for functions that do the same."""


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """One call of a shared function; results nobody uses are None."""

    shared: Shared
    arguments: tuple[Leaf, ...]
    results: tuple[Var | None, ...]

    @property
    def uses(self) -> tuple[Leaf, ...]:
        return self.arguments

    @cached_property
    def defines(self) -> tuple[Var, ...]:
        return tuple(r for r in self.results if r is not None)


Step: TypeAlias = "CodeLine | FunctionCall"


def plan(
    lines: Sequence[CodeLine],
    live_out: Iterable[Leaf],
    sameness: Sameness,
    paths: Mapping[Instruction, Path],
    depth: int = 0,
) -> tuple[Step, ...]:
    """Lines with the user's calls, and what else is repeated, turned into calls of functions.

    `live_out`: values that are used after the last line; `paths`: the calls each line stands in, those from `depth` on
    to be made here.
    """
    body = _BodyLines(lines, live_out, sameness, paths)
    calls = body.user_calls(depth)
    calls.update(body.repeats({i for start, (_, length) in calls.items() for i in range(start, start + length)}))
    return tuple(_merged(lines, calls))


class _BodyLines:
    """The lines of one function, and what each one refers to."""

    def __init__(
        self,
        lines: Sequence[CodeLine],
        live_out: Iterable[Leaf],
        sameness: Sameness,
        paths: Mapping[Instruction, Path],
    ) -> None:
        self.lines, self.sameness, self.paths = lines, sameness, paths
        self.producer = {var: i for i, line in enumerate(lines) for var in line.defines}
        self.numbers = [sameness.op(line.inst) for line in lines]
        self.references = [_references(line, self.producer) for line in lines]
        self.used_by = live_ranges(lines, live_out)

    def repeats(self, taken: Container[int]) -> dict[int, tuple[FunctionCall, int]]:
        """Calls for stretches that occur again and again among the other lines, each with its length."""
        keys = _keys(self.lines, self.references, self.numbers)
        # Each taken line gets a number of its own, so that nothing repeats it; `find_repeats` takes none below 0.
        keys = [-1 - i if i in taken else key for i, key in enumerate(keys)]
        lowest = min(keys, default=0)
        found = layers.find_repeats(
            [key - lowest for key in keys], self.references, alive_before(self.lines, self.used_by)
        )
        return dict(made for repeat in found for made in self._calls(repeat, 0, ""))

    def user_calls(self, depth: int) -> dict[int, tuple[FunctionCall, int]]:
        """Calls for the user's own, outermost first; one not worth a function leaves its place to those inside."""
        calls: dict[int, tuple[FunctionCall, int]] = {}
        waiting = [(depth, 0, len(self.lines))]
        while waiting:
            groups: dict[object, list[tuple[int, int, int]]] = {}
            for run in (run for stretch in waiting for run in self._runs(*stretch)):
                groups.setdefault(self._shape(run[1], run[2]), []).append(run)
            waiting = []
            for runs in groups.values():
                if self._is_function(runs):
                    calls.update(self._called(runs))
                else:
                    waiting += [(at + 1, begin, end) for at, begin, end in runs]
        return calls

    def _runs(self, depth: int, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Stretches that lie in one call at `depth`: depth, begin and end."""
        stretch = [self.paths.get(line.inst, ())[depth : depth + 1] for line in self.lines[begin:end]]
        for path, group in groupby(range(begin, end), key=lambda i: stretch[i - begin]):
            if path:
                places = list(group)
                yield depth, places[0], places[-1] + 1

    def _shape(self, begin: int, end: int) -> object:
        """What equal stretches have in common: their ops and what these refer to inside."""
        return tuple(
            (
                self.numbers[i],
                line.constants,
                tuple((p - begin, which) if p >= begin else None for p, which in self.references[i]),
            )
            for i, line in enumerate(self.lines[begin:end], begin)
        )

    def _is_function(self, runs: Sequence[tuple[int, int, int]]) -> bool:
        """Is a stretch long enough for a function, and are its arguments and results few enough?"""
        depth, begin, end = runs[0]
        length = end - begin
        # With all lines in it, nothing but the call would be left.
        if length < layers.MIN_LENGTH or length == len(self.lines):
            return False
        # A round is no function that the user wrote: written once, it saves no lines.
        if len(runs) == 1 and self.paths[self.lines[begin].inst][depth].is_round:
            return False
        made = {var for line in self.lines[begin:end] for var in line.defines}
        arguments = {u for line in self.lines[begin:end] for u in line.uses if not isinstance(u, Inline)} - made
        results = sum(self.used_by.get(var, -1) >= end for var in made)
        if len(runs) > 1:
            return len(arguments) + results <= length
        return len(arguments) <= _MANY_ARGUMENTS and results <= _MANY_RESULTS

    def _called(self, runs: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, tuple[FunctionCall, int]]]:
        depth, begin, end = runs[0]
        repeat = layers.Repeat(end - begin, tuple(begin for _, begin, _ in runs))
        return self._calls(repeat, depth + 1, self.paths[self.lines[begin].inst][depth].name)

    def _calls(self, repeat: layers.Repeat, depth: int, name: str) -> Iterator[tuple[int, tuple[FunctionCall, int]]]:
        stretches = [self.lines[s : s + repeat.length] for s in repeat.starts]
        slots, body = _with_slots(stretches, repeat.starts, self.producer)
        ends = [start + repeat.length for start in repeat.starts]
        # What is used behind one of the stretches is returned from all.
        outputs = sorted({at for each in zip(stretches, ends, strict=True) for at in _outputs(*each, self.used_by)})
        results = tuple(body[i].defines[j] for i, j in outputs)
        # No shorter stretch can hold a repeat that saves so many lines.
        is_planned = name or repeat.length > layers.MIN_SAVING
        steps = plan(body, results, self.sameness, self.paths, depth) if is_planned else tuple(body)
        parameters = tuple(Formal(i, _var(key[0])) for key, i in slots.items())
        # Ops that are alike may read one value from outside twice, or two values: `_shape` does not tell these apart.
        taken = tuple(leaf.index for line in body for leaf in line.uses if isinstance(leaf, Formal))
        key = name, self._shape(repeat.starts[0], repeat.starts[0] + repeat.length), taken, tuple(outputs)
        shared = Shared(parameters, steps, results, tuple(body), len(stretches), name, key)
        for number, (start, stretch, end) in enumerate(zip(repeat.starts, stretches, ends, strict=True)):
            made = [stretch[i].defines[j] for i, j in outputs]
            kept = tuple(v if self.used_by.get(v, -1) >= end else None for v in made)
            yield start, (FunctionCall(shared, tuple(key[number] for key in slots), kept), repeat.length)


def _merged(lines: Sequence[CodeLine], calls: dict[int, tuple[FunctionCall, int]]) -> Iterator[Step]:
    place = 0
    while place < len(lines):
        if place in calls:
            call, length = calls[place]
            yield call
            place += length
        else:
            yield lines[place]
            place += 1


def _references(line: CodeLine, producer: dict[Var, int]) -> tuple[tuple[int, int], ...]:
    found = []
    for leaf in line.uses:
        if isinstance(leaf, Var) and leaf in producer:
            found.append((producer[leaf], hash(leaf.path)))
        elif not isinstance(leaf, Inline):
            found.append((-1, 0))
    return tuple(found)


def _keys(
    lines: Sequence[CodeLine], references: Sequence[tuple[tuple[int, int], ...]], ops: Sequence[int]
) -> list[int]:
    numbers: dict[object, int] = {}
    keys: list[int] = []
    for place, (line, reference) in enumerate(zip(lines, references, strict=True)):
        near = tuple(place - p if p >= 0 and place - p < NEARBY else 0 for p, _ in reference)
        key = (ops[place], line.constants, near)
        keys.append(numbers.setdefault(key, len(numbers)))
    return keys


def _outputs(stretch: Sequence[CodeLine], end: int, used_by: dict[Leaf, int]) -> Iterator[tuple[int, int]]:
    for i, line in enumerate(stretch):
        for j, var in enumerate(line.defines):
            if used_by.get(var, -1) >= end:
                yield i, j


def _var(leaf: Leaf) -> Var:
    assert not isinstance(leaf, Inline)
    return leaf.var if isinstance(leaf, Formal) else leaf


def _with_slots(
    stretches: Sequence[Sequence[CodeLine]], starts: Sequence[int], producer: dict[Var, int]
) -> tuple[dict[tuple[Leaf, ...], int], list[CodeLine]]:
    """Number what comes from outside, a slot for each tuple of values over all stretches; and the first one's lines."""
    slots: dict[tuple[Leaf, ...], int] = {}

    def in_function(leaf: Leaf, everywhere: tuple[Leaf, ...]) -> Leaf:
        if isinstance(leaf, Inline) or (isinstance(leaf, Var) and producer.get(leaf, -1) >= starts[0]):
            return leaf
        return Formal(slots.setdefault(everywhere, len(slots)), _var(leaf))

    body = []
    for place, line in enumerate(stretches[0]):
        everywhere = zip(*(stretch[place].uses for stretch in stretches), strict=True)
        taken = map(in_function, line.uses, everywhere)
        body.append(CodeLine(line.inst, tuple(with_leaves(operand, taken) for operand in line.operands)))
    return slots, body


def live_ranges(steps: Sequence[Step], live_out: Iterable[Leaf]) -> dict[Leaf, int]:
    """The last step that uses each value; len(steps) for those that live on."""
    return {leaf: i for i, step in enumerate(steps) for leaf in step.uses} | dict.fromkeys(live_out, len(steps))


def alive_before(steps: Sequence[Step], last: Mapping[Leaf, int]) -> list[int]:
    """How many values made before each place are used at or after it."""
    ranges = ((i, min(last.get(var, i), len(steps))) for i, step in enumerate(steps) for var in step.defines)
    return layers.alive_before(ranges, len(steps))
