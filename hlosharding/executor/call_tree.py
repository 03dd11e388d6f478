"""Which call of the user's functions each line comes from, and an order in which a call's lines stand together.

Floor: executor.  Reads the Python stacks that JAX noted.  A stack says which function called which and where, not how
often: the rounds of a loop are told apart by dataflow, which runs down a function's text but for the next round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from heapq import heappop, heappush
from itertools import takewhile
from statistics import median
from typing import TypeAlias

from hlosharding.executor.flow import CodeLine, Var
from hlosharding.ir import ELEMENTWISE, GENERATORS, REARRANGES, Frame, Instruction, depth_first

_PURE = ELEMENTWISE | REARRANGES | GENERATORS | set("convolution dot fft reduce reduce-window scatter sort".split())
"""Ops whose order is free; all others keep theirs."""
_CHEAP = ELEMENTWISE | GENERATORS | {"broadcast", "reshape", "slice", "transpose"}


@dataclass(frozen=True, slots=True, eq=False)
class UserCall:
    """One call of a function of the user's."""

    name: str
    is_round: bool = False
    """Not a call, but a round of a loop in a function."""


Path: TypeAlias = tuple[UserCall, ...]
"""The calls that a line stands in, the outermost first."""
_Place: TypeAlias = tuple[str, tuple[int, int], tuple[int, int]]
"""A file, and where an expression in it begins and ends: line and column."""


@dataclass(frozen=True, slots=True, eq=False)
class _Calls:
    """A line's stack: the functions called, each with where from; and where in the innermost one the line stands."""

    names: tuple[str, ...]
    """The functions called, the outermost first."""
    calls: tuple[int, ...]
    """A number for each call: the same for the same function called from the same places."""
    sites: tuple[int, ...]
    """A number for each function called and the lines of that call; behind them one for the line's own."""
    places: tuple[_Place, ...]
    """Where the line stands in the function at each depth (0: the outermost): a call's place; behind them its own."""
    is_backward: bool

    def site(self, depth: int) -> int:
        """That at `depth`, or the line's own."""
        return self.sites[depth if depth < len(self.sites) else -1]

    def place(self, depth: int) -> _Place:
        """Likewise."""
        return self.places[depth if depth < len(self.places) else -1]


_NAMELESS = frozenset({"", "<module>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
"""What Python calls functions that the user gave no name."""
_OFTEN, _NEARLY_ALL = 2, 0.75
"""How often ops of a round occur, and which share of a call must, to make it a loop.  At 1 and 4 programs are 1.005 and
1.002 times as long; a share of 0.4 changes their length by nothing, of 1.0 by -0.003."""
_NOWHERE: _Place = ("", (0, 0), (0, 0))


def by_calls(lines: Sequence[CodeLine]) -> tuple[list[CodeLine], dict[Instruction, Path]]:
    """The lines in an order that keeps calls together, and the calls of each; as they are where no stacks are known."""
    producers = [tuple({leaf.inst: None for leaf in line.uses if isinstance(leaf, Var)}) for line in lines]
    stacks = _stacks(lines, producers)
    if not any(stack.calls for stack in stacks.values()):
        return list(lines), {}
    numbers = {line.inst: n for n, line in enumerate(lines)}
    operands = [tuple(numbers[o] for o in of if o in numbers) for of in producers]
    paths = _Rounds(operands, [stacks[inst] for inst in numbers], list(map(_signature, numbers))).paths()
    return _together(lines, operands, paths), dict(zip(numbers, paths, strict=True))


# ---- stacks


def _stacks(lines: Sequence[CodeLine], producers: Sequence[tuple[Instruction, ...]]) -> dict[Instruction, _Calls]:
    """Of lines that have none (a pass made them) the stack of a user, else of an operand."""
    known = [line.inst for line in lines if line.inst.frames]
    reader = _StackReader(_shared_frames(known))
    stacks = {inst: reader.stack(inst) for inst in known}
    for line, operands in zip(reversed(lines), reversed(producers), strict=True):
        if line.inst in stacks:
            stacks.update((o, stacks[line.inst]) for o in operands if o not in stacks and not o.frames)
    nowhere = reader.read((), is_backward=False)
    for line, operands in zip(lines, producers, strict=True):
        if line.inst not in stacks:
            stacks[line.inst] = next((stacks[o] for o in operands if o in stacks), nowhere)
    return stacks


def _shared_frames(instructions: Sequence[Instruction]) -> int:
    """How many frames, outermost first, all stacks have in common: whoever called the function is no part of it."""
    stacks = {inst.proto.metadata.stack_frame_id: inst for inst in instructions}
    # Without the innermost one, which is where the line itself stands.
    users = [frames[:0:-1] for inst in stacks.values() if (frames := inst.frames.of_user)]
    return sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, zip(*users, strict=False)))


class _StackReader:
    """Reads the stacks of a program; equal ones, and equal calls in them, once."""

    def __init__(self, shared: int) -> None:
        # The last of these stays: from it the first call is made.
        self._begin = max(0, shared - 1)
        self._known: dict[tuple[int, bool], _Calls] = {}
        self._numbers: dict[object, int] = {}

    def stack(self, inst: Instruction) -> _Calls:
        """An instruction's."""
        key = inst.proto.metadata.stack_frame_id, inst.is_backward
        if key not in self._known:
            self._known[key] = self.read(inst.frames.of_user[::-1][self._begin :], is_backward=key[1])
        return self._known[key]

    def read(self, frames: Sequence[Frame], *, is_backward: bool) -> _Calls:
        """Of the user's frames, outermost first."""
        # Where a function was inlined that had been traced on its own, its whole stack stands behind the caller's.
        starts = [(frame.file, frame.line) for frame in frames]
        begin = next((n - starts.index(starts[n]) for n in range(len(frames) - 1, 1, -1) if starts[n] in starts[:2]), 0)
        calls: list[tuple[str, tuple[_Place, ...]]] = []
        places: list[_Place] = []
        for number, frame in enumerate(frames[begin:]):
            name = frame.function_name
            if number and name not in _NAMELESS:
                calls.append((name, tuple(places)))
                places = []
            places.append((frame.file, (frame.line, frame.column), (frame.end_line, frame.end_column)))
        here = places[0] if places else _NOWHERE
        return _Calls(
            names=tuple(name for name, _ in calls),
            calls=tuple(map(self._number, calls)),
            sites=tuple(self._number(_site(*call)) for call in (*calls, ("", (here,)))),
            places=(*(places[0] for _, places in calls), here),
            is_backward=is_backward,
        )

    def _number(self, what: object) -> int:
        return self._numbers.setdefault(what, len(self._numbers))


def _site(name: str, places: Sequence[_Place]) -> object:
    return name, tuple((file, begin[0], end[0]) for file, begin, end in places)


# ---- rounds


class _Rounds:
    """Tells a function's calls from one place apart: a value that flows up its text flows into the next round.

    Lines are numbers here.
    """

    def __init__(
        self, operands: Sequence[Sequence[int]], stacks: Sequence[_Calls], signatures: Sequence[object]
    ) -> None:
        self._operands, self._stacks, self._signatures = operands, stacks, signatures
        self._paths: list[Path] = [()] * len(stacks)
        self._calls: dict[object, UserCall] = {}

    def paths(self) -> list[Path]:
        """Each line's calls; a round of a loop that makes several calls counts as one."""
        inside = list(range(len(self._stacks)))
        for depth in range(max(len(stack.calls) for stack in self._stacks)):
            # Lines of functions that were called less deep are through.
            inside = [n for n in inside if depth <= len(self._stacks[n].calls)]
            self._go_into(inside, depth)
        return self._paths

    def _go_into(self, inside: Sequence[int], depth: int) -> None:
        rounds = self._rounds(inside, depth)
        mixed = self._mixed_rounds(inside, rounds, depth)
        for n in inside:
            stack, path, number = self._stacks[n], self._paths[n], rounds[n]
            if (path, number) in mixed:
                outer = path[-1].name if path else "loop"
                path = (*path, self._calls.setdefault((path, number), UserCall(f"{outer}_round", is_round=True)))
            if depth < len(stack.calls):
                call = UserCall(f"{stack.names[depth]}{'_grad' if stack.is_backward else ''}")
                key = path, stack.is_backward, stack.calls[depth], number
                path = (*path, self._calls.setdefault(key, call))
            self._paths[n] = path

    def _mixed_rounds(self, inside: Sequence[int], rounds: Sequence[int], depth: int) -> set[tuple[Path, int]]:
        """Of functions that go through several rounds those that hold more than one call."""
        numbers: dict[Path, set[int]] = {}
        sites: dict[tuple[Path, int], set[int]] = {}
        for n in inside:
            path, number = self._paths[n], rounds[n]
            numbers.setdefault(path, set()).add(number)
            sites.setdefault((path, number), set()).add(self._stacks[n].site(depth))
        return {key for key, found in sites.items() if len(numbers[key[0]]) > 1 and len(found) > 1}

    def _rounds(self, inside: Sequence[int], depth: int) -> list[int]:
        """In which round of its function's text, at `depth`, each line stands."""
        rounds = [0] * len(self._stacks)
        turned = [frozenset[int]()] * len(self._stacks)
        seen: Counter[object] = Counter()
        quotas, nearby, edge = self._quotas(inside, depth), self._nearby(inside), cache(partial(_data_edge, depth))
        for n in inside:
            near = nearby[n]
            number = max([rounds[o] for o in near]) if near else 0
            ups = frozenset[int]()
            for o in near:
                # What earlier rounds made flows into this one in any case.
                if rounds[o] == number:
                    ups |= self._turns(edge(self._stacks[o], self._stacks[n]), depth, turned[o])
            # Lines that were merged flow up the text as well; only a new round brings the same ops again.
            what = self._paths[n], self._signatures[n]
            if ups and seen[number, what] >= quotas.get(what, len(self._stacks)):
                number, ups = number + 1, frozenset()
            rounds[n], turned[n] = number, ups
            seen[number, what] += 1
        return self._with_first_users(rounds, nearby, edge)

    def _nearby(self, inside: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Of each line's operands those in the same call and of the same direction."""
        groups: dict[object, int] = {}
        group = {n: groups.setdefault((self._paths[n], self._stacks[n].is_backward), len(groups)) for n in inside}
        return {n: tuple(o for o in self._operands[n] if group.get(o) == own) for n, own in group.items()}

    def _quotas(self, inside: Sequence[int], depth: int) -> dict[object, int]:
        """How often an op may occur in one round, for ops that occur in several.

        Of a call's ops only where nearly all inside are such: else it is the function called that holds a loop.
        """
        calls: dict[tuple[Path, int], dict[int, Counter[object]]] = {}
        for n in inside:
            stack = self._stacks[n]
            sites = calls.setdefault((self._paths[n], stack.site(depth)), {})
            sites.setdefault(stack.site(depth + 1), Counter())[self._signatures[n]] += 1
        quotas: dict[object, int] = {}
        for (path, _), sites in calls.items():
            often = [(counts, times) for counts in sites.values() if (times := median(counts.values())) >= _OFTEN]
            if len(often) >= _NEARLY_ALL * len(sites):
                quotas |= {
                    (path, what): max(1, round(n / times)) for counts, times in often for what, n in counts.items()
                }
        return quotas

    @staticmethod
    def _turns(step: _DataEdge, depth: int, turned: frozenset[int]) -> frozenset[int]:
        """The depths at which the flow has gone up; what it did inside a call is forgotten behind that call."""
        kept = turned if step.is_inside else turned - {depth + 1}
        return kept | {depth + step.is_inside} if step.goes_up else kept

    def _with_first_users(
        self, rounds: list[int], nearby: dict[int, tuple[int, ...]], edge: Callable[[_Calls, _Calls], _DataEdge]
    ) -> list[int]:
        """What depends on nothing of a loop's (a weight's cast) belongs to the round that uses it first."""
        latest: dict[int, int] = {}
        for n in reversed(nearby):
            if not rounds[n]:
                rounds[n] = latest.get(n, 0)
            for o in nearby[n]:
                if not rounds[o]:
                    # A value that goes up the text was made in the round before.
                    before = max(0, rounds[n] - edge(self._stacks[o], self._stacks[n]).goes_up)
                    latest[o] = min(latest.get(o, before), before)
        return rounds


@dataclass(frozen=True, slots=True)
class _DataEdge:
    """From where a value is made to where it is used."""

    is_inside: bool
    """Of one call."""
    goes_up: bool
    """The text of the function at a depth, or of one that it calls at one place: then it calls it again."""


def _data_edge(depth: int, before: _Calls, after: _Calls) -> _DataEdge:
    is_inside = depth < len(before.calls) and before.site(depth) == after.site(depth)
    return _DataEdge(is_inside, _goes_up(before, after, depth + is_inside))


def _goes_up(before: _Calls, after: _Calls, depth: int) -> bool:
    first_place, second_place = before.place(depth), after.place(depth)
    # A gradient goes through the text from its end.
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


def _together(lines: Sequence[CodeLine], operands: Sequence[Sequence[int]], paths: Sequence[Path]) -> list[CodeLine]:
    """From what is ready the line that shares most calls with the one before, the earliest of those."""
    is_late = _late(lines, operands)
    missing, users = _dependencies(lines, operands, is_late)
    ready: dict[Path, list[int]] = {}
    done = [False] * len(lines)

    def offer(number: int) -> None:
        for depth in range(len(paths[number]) + 1):
            heappush(ready.setdefault(paths[number][:depth], []), number)

    for number, count in enumerate(missing):
        if not count and not is_late[number]:
            offer(number)
    order: list[CodeLine] = []
    path: Path = ()
    while len(order) < len(lines):
        number = _next(ready, done, path)
        # What comes late comes with the line that needs it first, before it.
        for n in depth_first([number], lambda line: (o for o in operands[line] if not done[o])):
            done[n] = True
            order.append(lines[n])
        path = paths[number]
        for user in users[number]:
            missing[user] -= 1
            if not missing[user]:
                offer(user)
    return order


def _late(lines: Sequence[CodeLine], operands: Sequence[Sequence[int]]) -> list[bool]:
    """Lines that come right before their first user: cheap work on inputs alone (a weight's cast, a mask)."""
    is_cheap: list[bool] = []
    for line, of in zip(lines, operands, strict=True):
        is_cheap.append(line.inst.opcode in _CHEAP and all(is_cheap[o] for o in of))
    is_late = [False] * len(lines)
    for number in reversed(range(len(lines))):
        for o in operands[number]:
            is_late[o] |= is_cheap[o] and (is_late[number] or not is_cheap[number])
    return is_late


def _next(ready: Mapping[Path, list[int]], done: Sequence[bool], path: Path) -> int:
    for depth in range(len(path), -1, -1):
        heap = ready.get(path[:depth], [])
        # Each line lies in a heap for every depth: what was taken by way of another one is dropped here.
        while heap and done[heap[0]]:
            heappop(heap)
        if heap:
            return heap[0]
    raise AssertionError("a line waits for itself")


def _dependencies(
    lines: Sequence[CodeLine], operands: Sequence[Sequence[int]], is_late: Sequence[bool]
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
