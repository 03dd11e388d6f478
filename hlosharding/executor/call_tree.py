"""Which call of the user's functions each line comes from, and an order in which a call's lines stand together.

Floor: executor.  Reads the Python stacks that JAX noted.  A stack says which function called which and where, not how
often: the rounds of a loop are told apart by dataflow, which runs down a function's text but for the next round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import takewhile
from statistics import median
from typing import TypeAlias

from hlosharding.executor.flow import Line, Var
from hlosharding.ir import ELEMENTWISE, Frame, Instruction

_PURE = ELEMENTWISE | frozenset(
    "broadcast reshape transpose slice convert reduce dot iota compare select constant concatenate pad reverse gather"
    " scatter sort convolution dynamic-slice dynamic-update-slice reduce-window bitcast-convert fft".split()
)
"""Ops whose order is free; all others keep theirs."""
_CHEAP = ELEMENTWISE | frozenset("broadcast reshape transpose slice convert iota compare select constant".split())


@dataclass(frozen=True, slots=True)
class UserCall:
    """One call of a function of the user's."""

    name: str
    number: int
    """No two calls of a program have the same."""
    is_round: bool = False
    """Not a call, but a round of a loop in a function."""


Path: TypeAlias = tuple[UserCall, ...]
"""The calls that a line stands in, the outermost first."""
_Place: TypeAlias = tuple[str, tuple[int, int], tuple[int, int]]
"""A file, and where an expression in it begins and ends: line and column."""


@dataclass(frozen=True, slots=True)
class _Stack:
    """A line's stack: the functions called, each with where from; and where in the innermost one the line stands."""

    calls: tuple[tuple[str, tuple[_Place, ...]], ...]
    here: _Place
    is_backward: bool

    def site(self, depth: int) -> object:
        """The function called at `depth` and the lines of that call, or the line's own."""
        name, places = self.calls[depth] if depth < len(self.calls) else ("", (self.here,))
        return name, tuple((file, begin[0], end[0]) for file, begin, end in places)

    def place(self, depth: int) -> _Place:
        """Where the line stands in the function at `depth` (0: the outermost): its own place, or that of a call."""
        return self.calls[depth][1][0] if depth < len(self.calls) else self.here


_NAMELESS = frozenset({"", "<module>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
"""What Python calls functions that the user gave no name."""
_OFTEN, _NEARLY_ALL = 2, 0.75
_NOWHERE: _Place = ("", (0, 0), (0, 0))
_NO_STACK = _Stack((), _NOWHERE, False)


def by_calls(lines: Sequence[Line]) -> tuple[list[Line], dict[Instruction, Path]]:
    """The lines in an order that keeps calls together, and the calls of each; as they are where no stacks are known."""
    stacks = _stacks(lines)
    if not any(stack.calls for stack in stacks.values()):
        return list(lines), {}
    producers = [_producers(line) for line in lines]
    paths = _Rounds(lines, producers, stacks).paths()
    return _together(lines, producers, paths), paths


def _producers(line: Line) -> tuple[Instruction, ...]:
    return tuple({leaf.inst: None for leaf in line.uses if isinstance(leaf, Var)})


# ---- stacks


def _stacks(lines: Sequence[Line]) -> dict[Instruction, _Stack]:
    """Of lines that have none (a pass made them) the stack of a user, else of an operand."""
    known: dict[tuple[int, bool], _Stack] = {}
    shared = _shared_frames(lines)
    stacks = {line.inst: _stack(line.inst, known, shared) for line in lines if line.inst.frames}
    for line in reversed(lines):
        if line.inst in stacks:
            stacks.update((o, stacks[line.inst]) for o in _producers(line) if o not in stacks and not o.frames)
    for line in lines:
        stacks.setdefault(line.inst, next((stacks[o] for o in _producers(line) if o in stacks), _NO_STACK))
    return stacks


def _shared_frames(lines: Sequence[Line]) -> int:
    """How many frames, outermost first, all stacks have in common: whoever called the function is no part of it."""
    stacks = {line.inst.proto.metadata.stack_frame_id: line.inst for line in lines if line.inst.frames}
    users = [frames[:-1] for inst in stacks.values() if (frames := _users_frames(inst))]
    return sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, zip(*users, strict=False)))


def _users_frames(inst: Instruction) -> list[Frame]:
    """Outermost first, without those of installed packages."""
    return [frame for frame in inst.frames[::-1] if not frame.is_library]


def _stack(inst: Instruction, known: dict[tuple[int, bool], _Stack], shared: int) -> _Stack:
    key = inst.proto.metadata.stack_frame_id, "transpose(" in inst.op_name
    if key not in known:
        known[key] = _read(_users_frames(inst)[max(0, shared - 1) :], key[1])
    return known[key]


def _read(frames: Sequence[Frame], is_backward: bool) -> _Stack:
    # Where a function was inlined that had been traced on its own, its whole stack stands behind the caller's.
    starts = [(frame.file, frame.line) for frame in frames]
    begin = next((n - starts.index(starts[n]) for n in range(len(frames) - 1, 1, -1) if starts[n] in starts[:2]), 0)
    frames = frames[begin:]
    calls: list[tuple[str, tuple[_Place, ...]]] = []
    places: list[_Place] = []
    for number, frame in enumerate(frames):
        name = function_name(frame)
        if number and name not in _NAMELESS:
            calls.append((name, tuple(places)))
            places = []
        places.append((frame.file, (frame.line, frame.column), (frame.end_line, frame.end_column)))
    return _Stack(tuple(calls), places[0] if places else _NOWHERE, is_backward)


def function_name(frame: Frame) -> str:
    """The function's own name; of a method like `Block.__call__` its class's.

    >>> function_name(Frame("m.py", "Block.__call__", 3, 0)), function_name(Frame("m.py", "make.<locals>.step", 3, 0))
    ('Block', 'step')
    """
    *outer, name = frame.function.split(".")
    return outer[-1] if outer and name.startswith("__") else name


# ---- rounds


class _Rounds:
    """Tells a function's calls from one place apart: a value that flows up its text flows into the next round."""

    def __init__(
        self, lines: Sequence[Line], producers: Sequence[tuple[Instruction, ...]], stacks: Mapping[Instruction, _Stack]
    ) -> None:
        self._lines, self._producers, self._stacks = lines, producers, stacks
        self._paths: dict[Instruction, Path] = {line.inst: () for line in lines}
        self._calls: dict[object, UserCall] = {}

    def paths(self) -> dict[Instruction, Path]:
        """Each line's calls; a round of a loop that makes several calls counts as one."""
        for depth in range(max(len(stack.calls) for stack in self._stacks.values())):
            rounds = self._rounds(depth)
            mixed = self._mixed_rounds(rounds, depth)
            for line in self._lines:
                stack, path = self._stacks[line.inst], self._paths[line.inst]
                if depth > len(stack.calls):
                    continue
                number = rounds[line.inst]
                if (path, number) in mixed:
                    outer = path[-1].name if path else "loop"
                    path = (*path, self._call((path, number), f"{outer}_round", is_round=True))
                if depth < len(stack.calls):
                    name = f"{stack.calls[depth][0]}{'_grad' if stack.is_backward else ''}"
                    path = (*path, self._call((path, stack.is_backward, stack.calls[depth], number), name))
                self._paths[line.inst] = path
        return self._paths

    def _call(self, key: object, name: str, *, is_round: bool = False) -> UserCall:
        return self._calls.setdefault(key, UserCall(name, len(self._calls), is_round))

    def _mixed_rounds(self, rounds: Mapping[Instruction, int], depth: int) -> set[tuple[Path, int]]:
        """Of functions that go through several rounds those that hold more than one call."""
        numbers: dict[Path, set[int]] = {}
        sites: dict[tuple[Path, int], set[object]] = {}
        for line in self._lines:
            stack, path = self._stacks[line.inst], self._paths[line.inst]
            if depth <= len(stack.calls):
                numbers.setdefault(path, set()).add(rounds[line.inst])
                sites.setdefault((path, rounds[line.inst]), set()).add(stack.site(depth))
        return {key for key, found in sites.items() if len(numbers[key[0]]) > 1 and len(found) > 1}

    def _rounds(self, depth: int) -> dict[Instruction, int]:
        """In which round of its function's text, at `depth`, each line stands."""
        rounds: dict[Instruction, int] = {}
        turned: dict[Instruction, frozenset[int]] = {}
        seen: Counter[object] = Counter()
        quotas = self._quotas(depth)
        for line, producers in zip(self._lines, self._producers, strict=True):
            inst, path = line.inst, self._paths[line.inst]
            near = [o for o in producers if o in rounds and self._is_near(o, inst, depth)]
            number = max((rounds[o] for o in near), default=0)
            turns = [self._turns(o, inst, depth, turned[o]) for o in near if rounds[o] == number]
            turned[inst] = frozenset[int]().union(*turns)
            # Lines that were merged flow up the text as well; only a new round brings the same ops again.
            what = path, _signature(inst)
            if turned[inst] and seen[number, what] >= quotas.get(what, len(self._lines)):
                number, turned[inst] = number + 1, frozenset()
            rounds[inst] = number
            seen[number, what] += 1
        return self._with_first_users(rounds, depth)

    def _quotas(self, depth: int) -> dict[object, int]:
        """How often an op may occur in one round, for ops that occur in several.

        Of a call's ops only where nearly all inside are such: else it is the function called that holds a loop.
        """
        inside: dict[tuple[Path, object], dict[object, Counter[object]]] = {}
        for line in self._lines:
            stack = self._stacks[line.inst]
            if depth <= len(stack.calls):
                sites = inside.setdefault((self._paths[line.inst], stack.site(depth)), {})
                sites.setdefault(stack.site(depth + 1), Counter())[_signature(line.inst)] += 1
        quotas: dict[object, int] = {}
        for (path, _), sites in inside.items():
            often = [(counts, times) for counts in sites.values() if (times := median(counts.values())) >= _OFTEN]
            if len(often) >= _NEARLY_ALL * len(sites):
                quotas |= {
                    (path, what): max(1, round(n / times)) for counts, times in often for what, n in counts.items()
                }
        return quotas

    def _turns(self, first: Instruction, second: Instruction, depth: int, turned: frozenset[int]) -> frozenset[int]:
        """The depths at which the flow has gone up; what it did inside a call is forgotten behind that call."""
        before, after = self._stacks[first], self._stacks[second]
        is_inside = depth < len(before.calls) and before.site(depth) == after.site(depth)
        kept = turned if is_inside else turned - {depth + 1}
        return kept | {depth + is_inside} if self._goes_up(first, second, depth) else kept

    def _with_first_users(self, rounds: dict[Instruction, int], depth: int) -> dict[Instruction, int]:
        """What depends on nothing of a loop's (a weight's cast) belongs to the round that uses it first."""
        latest: dict[Instruction, int] = {}
        for line, producers in zip(reversed(self._lines), reversed(self._producers), strict=True):
            inst = line.inst
            if not rounds[inst]:
                rounds[inst] = latest.get(inst, 0)
            for o in producers:
                if o in rounds and not rounds[o] and self._is_near(o, inst, depth):
                    before = max(0, rounds[inst] - self._goes_up(o, inst, depth))
                    latest[o] = min(latest.get(o, before), before)
        return rounds

    def _is_near(self, first: Instruction, second: Instruction, depth: int) -> bool:
        if self._stacks[first].is_backward != self._stacks[second].is_backward:
            return False
        reach = min(len(self._stacks[first].calls), len(self._stacks[second].calls))
        return reach >= depth and self._paths[first] == self._paths[second]

    def _goes_up(self, first: Instruction, second: Instruction, depth: int) -> bool:
        """Up the text of the function at `depth`, or of one that it calls at one place: then it calls it again."""
        before, after = self._stacks[first], self._stacks[second]
        if depth < len(before.calls) and before.site(depth) == after.site(depth):
            depth += 1
        first_place, second_place = before.place(depth), after.place(depth)
        if before.is_backward:
            first_place, second_place = second_place, first_place
        (file, begin, end), (other_file, other_begin, other_end) = first_place, second_place
        if file != other_file:
            return False
        # An argument is computed before the call that it is for, and stands inside of it.
        is_argument = begin <= other_begin and other_end <= end and first_place != second_place
        return begin[0] > other_end[0] or is_argument


def _signature(inst: Instruction) -> object:
    return inst.proto.metadata.stack_frame_id, inst.opcode, inst.shape


# ---- the order


def _together(
    lines: Sequence[Line], producers: Sequence[tuple[Instruction, ...]], paths: Mapping[Instruction, Path]
) -> list[Line]:
    """From what is ready the line that shares most calls with the one before, the earliest of those."""
    numbers = {line.inst: i for i, line in enumerate(lines)}
    operands = [[numbers[o] for o in of if o in numbers] for of in producers]
    is_late = _late(lines, operands)
    missing, users = _dependencies(lines, operands, is_late)
    ready: dict[Path, list[int]] = {}
    done = [False] * len(lines)

    def offer(number: int) -> None:
        path = paths[lines[number].inst]
        for depth in range(len(path) + 1):
            heappush(ready.setdefault(path[:depth], []), number)

    for number, count in enumerate(missing):
        if not count and not is_late[number]:
            offer(number)
    order: list[Line] = []
    path: Path = ()
    while len(order) < len(lines):
        number = _next(ready, done, path)
        order += (lines[n] for n in _with_late_operands(number, operands, done))
        path = paths[lines[number].inst]
        for user in users[number]:
            missing[user] -= 1
            if not missing[user]:
                offer(user)
    return order


def _late(lines: Sequence[Line], operands: Sequence[Sequence[int]]) -> list[bool]:
    """Lines that come right before their first user: cheap work on inputs alone (a weight's cast, a mask)."""
    is_cheap: list[bool] = []
    for line, of in zip(lines, operands, strict=True):
        is_cheap.append(line.inst.opcode in _CHEAP and all(is_cheap[o] for o in of))
    is_late = [False] * len(lines)
    for number in reversed(range(len(lines))):
        for o in operands[number]:
            is_late[o] |= is_cheap[o] and (is_late[number] or not is_cheap[number])
    return is_late


def _with_late_operands(number: int, operands: Sequence[Sequence[int]], done: list[bool]) -> list[int]:
    """A line, after what it needs and is not there yet."""
    found: list[int] = []
    waiting = [number]
    while waiting:
        missing = [o for o in operands[waiting[-1]] if not done[o]]
        if missing:
            waiting += missing[::-1]
            continue
        last = waiting.pop()
        if not done[last]:
            done[last] = True
            found.append(last)
    return found


def _next(ready: Mapping[Path, list[int]], done: Sequence[bool], path: Path) -> int:
    for depth in range(len(path), -1, -1):
        heap = ready.get(path[:depth], [])
        while heap and done[heap[0]]:
            heappop(heap)
        if heap:
            return heap[0]
    raise AssertionError("a line waits for itself")


def _dependencies(
    lines: Sequence[Line], operands: Sequence[Sequence[int]], is_late: Sequence[bool]
) -> tuple[list[int], list[list[int]]]:
    """How many lines each one waits for, and which wait for it; nobody waits for late ones."""
    users: list[list[int]] = [[] for _ in lines]
    missing = [0] * len(lines)
    before: int | None = None
    for number, line in enumerate(lines):
        needed = {o for o in operands[number] if not is_late[o]}
        if line.inst.opcode not in _PURE:
            needed |= {before} if before is not None else set()
            before = number
        missing[number] = len(needed)
        for other in needed:
            users[other].append(number)
    return missing, users
