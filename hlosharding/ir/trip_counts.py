"""How often a loop's body runs: what XLA wrote down (`known_trip_count`), or what the loop's counter says.

Floor: ir.  The counter is the carried integer that the condition compares; its initial value, step and limit are looked
for through copies, fusions, calls and tuples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple

from hlosharding.errors import ModuleError, is_count
from hlosharding.ir import rewrite
from hlosharding.ir.attributes import is_at
from hlosharding.ir.control_flow import while_parts
from hlosharding.ir.graph import Computation, Instruction
from hlosharding.ir.module import Module
from hlosharding.ir.shape import Shape

GUESS = 100
"""Trips of a loop of which nobody can tell: one that is worth a loop makes many, and what moves in each is dear."""
_SEEN_THROUGH = frozenset({"copy", "reshape", "opt-barrier", "copy-start", "copy-done", "domain"})
_RETYPES = frozenset({"bitcast", "convert"})
_MOST_STEPS = 10_000
"""So far is a value followed: the way through calls of calls, each of which calls another twice, doubles with each."""


class Trips(NamedTuple):
    """Executions of a loop's body."""

    count: int
    is_exact: bool


class LoopCounter(NamedTuple):
    """The element of a loop's carry that counts: in trip t it is start + t * step."""

    index: int
    start: int
    step: int
    trips: int


def loop_counter(loop: Instruction) -> LoopCounter | None:
    """What counts the trips of a loop, from a constant start to a constant end; None where nothing does.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... going { p = (s32[]) parameter(0)  i = s32[] get-tuple-element(p), index=0  c = s32[] constant(3)
    ...   ROOT r = pred[] compare(i, c), direction=LT }
    ... step { p = (s32[]) parameter(0)  i = s32[] get-tuple-element(p), index=0  c = s32[] constant(1)
    ...   n = s32[] add(i, c)  ROOT r = (s32[]) tuple(n) }
    ... ENTRY e { x = s32[] constant(0)  t = (s32[]) tuple(x)
    ...   ROOT w = (s32[]) while(t), condition=going, body=step }''')
    >>> loop_counter(module.by_name("w"))
    LoopCounter(index=0, start=0, step=1, trips=3)
    """
    return _Counter(loop).counter()


def trip_count(loop: Instruction) -> Trips:
    """Executions of a loop's body; where nobody can tell, the counter's limit, or else `GUESS`, and not exact."""
    known = _known_trip_count(loop)
    if known is not None:
        return Trips(known, True)
    return _Counter(loop).trips()


def _known_trip_count(loop: Instruction) -> int | None:
    text = loop.opaque
    if "known_trip_count" not in text:
        return None
    try:
        count = int(json.loads(text)["known_trip_count"]["n"])
    # The last for Infinity, which `json` reads and no int is.
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return count if count >= 0 else None


def with_trip_counts(module: Module, trips: Mapping[str, int]) -> Module:
    """A module whose loops run as often as stated, in the place where XLA states it; the given one is not changed.

    `trips`: name of a while instruction, or the source line of a loop ("model.py:31"), to executions of its body.
    Raises ModuleError for a name that is no loop's, and for a count that is none.
    """
    out = module.clone() if trips else module
    for name, count in trips.items():
        if not is_count(count, 0):
            raise ModuleError(f"trips of {name} are {count!r}", remedy="give a whole number, 0 or more")
        for loop in _loops_called(out, name):
            rewrite.set_attributes(loop, opaque=json.dumps({**_config(loop), "known_trip_count": {"n": str(count)}}))
    return out


def _loops_called(module: Module, name: str) -> list[Instruction]:
    loops = [i for i in module.instructions if i.opcode == "while"]
    found = [i for i in loops if i.name == name.removeprefix("%")] or [i for i in loops if is_at(i.location, name)]
    if not found:
        known = [text for i in loops for text in (i.name, i.location) if text]
        near = get_close_matches(name, known, 3) or known[:3]
        remedy = f"did you mean {', '.join(near)}?" if near else "the program has no loops"
        raise ModuleError(f"no loop is called {name}", remedy=remedy)
    return found


def _config(loop: Instruction) -> dict[str, object]:
    try:
        config = json.loads(loop.opaque)
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


_WHOLE = -1
"""Index of a carry that is no tuple."""


class _CallArguments(NamedTuple):
    """Arguments of a computation that is being looked through (a fusion or a call), and the scope around it."""

    arguments: tuple[Instruction, ...]
    outer: _CallArguments | None


class _ScopedInstruction(NamedTuple):
    """An instruction, and how to read the parameters of its computation (None: they are the loop's carry)."""

    instruction: Instruction
    scope: _CallArguments | None


_Limit = tuple[int, str, int]
"""Which element counts, by which comparison, and up to what."""


class _Counter:
    """Finds carry[i] in: while (carry[i] < limit) carry[i] += step, with a start and a limit that are constant, or were
    left by a loop that such count.

    Loops are followed one back: in a chain each would ask the one before once for every value it takes from there.
    """

    def __init__(self, loop: Instruction, *, follows_loops: bool = True) -> None:
        self.loop, self.follows_loops = loop, follows_loops
        self.body, self.condition = while_parts(loop)

    def counter(self) -> LoopCounter | None:
        found = [self._counter_to(limit) for limit in self._limits]
        # All must hold for one more trip: the first that fails ends the loop.
        known = [each for each in found if each is not None]
        return min(known, key=lambda each: each.trips) if len(known) == len(found) else None

    def _counter_to(self, index_and_limit: _Limit | None) -> LoopCounter | None:
        if index_and_limit is None:
            return None
        index, direction, limit = index_and_limit
        start, step = self._start(index), self._step(index)
        if start is None or step is None:
            return None
        count = _count(start, step, limit, direction)
        # What wraps around on the way to its end goes on.
        if count is None or start + count * step not in _integers(self._carried(index)):
            return None
        return LoopCounter(index, start, step, count)

    def trips(self) -> Trips:
        counter = self.counter()
        if counter is not None:
            return Trips(counter.trips, True)
        # Most such loops count from zero in steps of one: the limit is the best guess.
        most = [max(0, top + (how == "LE")) for _, how, top in filter(None, self._limits) if how in ("LT", "LE")]
        # One of two is what a search may take at most: mostly it takes far less.
        return Trips(min(most if len(self._limits) == 1 else [*most, GUESS], default=GUESS), False)

    @cached_property
    def _limits(self) -> list[_Limit | None]:
        """Of the condition, or of each that TensorFlow joins by `and`: its own, and the most trips there may be."""
        root, scope = _source(self.condition.root, None)
        if root.opcode != "and":
            return [self._limit_in(root, scope)]
        return [self._limit_in(*_source(part, scope)) for part in root.operands]

    def _limit_in(self, root: Instruction, scope: _CallArguments | None) -> _Limit | None:
        if root.opcode != "compare":
            return None
        lhs, rhs = (_source(o, scope) for o in root.operands)
        direction = root.comparison_direction
        for counter, limit, seen in ((lhs, rhs, direction), (rhs, lhs, _TURNED[direction])):
            index, value = _carry_index(counter, self.condition), self._limit(limit)
            if index is not None and value is not None:
                return index, seen, value
        return None

    def _limit(self, place: _ScopedInstruction) -> int | None:
        if place.instruction.opcode == "constant":
            return _integer(place.instruction)
        index = _carry_index(place, self.condition)
        # A carried limit is one only where each trip hands it on as it was.
        if index is None or _carry_index(_element(self.body.root, index), self.body) != index:
            return None
        return self._start(index)

    def _carried(self, index: int) -> Shape:
        return self.loop.shape if index == _WHOLE else self.loop.shape.tuple_shapes[index]

    def _start(self, index: int) -> int | None:
        instruction = _element(self.loop.operands[0], index).instruction
        if instruction.opcode == "constant":
            return _integer(instruction)
        return _left_by_loop(instruction) if self.follows_loops else None

    def _step(self, index: int) -> int | None:
        update, scope = _element(self.body.root, index)
        if update.opcode not in ("add", "subtract"):
            return None
        lhs, rhs = (_source(o, scope) for o in update.operands)
        # A step minus the counter does not count.
        turns = ((lhs, rhs), (rhs, lhs)) if update.opcode == "add" else ((lhs, rhs),)
        for counter, step in turns:
            if _carry_index(counter, self.body) == index and step.instruction.opcode == "constant":
                value = _integer(step.instruction)
                return -value if value is not None and update.opcode == "subtract" else value
        return None


def _left_by_loop(value: Instruction) -> int | None:
    """The end of another loop's counter: TensorFlow's gradient of a loop runs as often as that said it ran."""
    if value.opcode != "get-tuple-element" or value.operands[0].opcode != "while":
        return None
    counter = _Counter(value.operands[0], follows_loops=False).counter()
    if counter is None or counter.index != value.tuple_index:
        return None
    return counter.start + counter.step * counter.trips


_TURNED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def _count(start: int, step: int, limit: int, direction: str) -> int | None:
    if direction in ("GT", "GE"):
        start, step, limit, direction = -start, -step, -limit, {"GT": "LT", "GE": "LE"}[direction]
    if direction == "LE":
        limit += 1
    if direction in ("LT", "LE"):
        # Before the step is asked for: what does not begin runs 0 times, whatever its step.
        if start >= limit:
            return 0
        return -(-(limit - start) // step) if step > 0 else None
    # One that jumps over its end goes on until the integer wraps around: nobody counts that.
    if direction == "NE" and step and (limit - start) % step == 0 and (limit - start) // step >= 0:
        return (limit - start) // step
    return None


def _source(instruction: Instruction, scope: _CallArguments | None) -> _ScopedInstruction:
    """The instruction that really makes a value: through copies, fusions, calls and tuples."""
    return _followed(instruction, scope, iter(range(_MOST_STEPS)))


def _followed(instruction: Instruction, scope: _CallArguments | None, steps: Iterator[int]) -> _ScopedInstruction:
    for _ in steps:
        opcode = instruction.opcode
        if opcode in _SEEN_THROUGH or (opcode in _RETYPES and _keeps_number(instruction)):
            instruction = instruction.operands[0]
        elif opcode in ("fusion", "call") and instruction.called:
            scope = _CallArguments(instruction.operands, scope)
            instruction = instruction.called[0].root
        elif opcode == "parameter" and scope is not None:
            instruction, scope = scope.arguments[instruction.parameter_number], scope.outer
        elif opcode == "get-tuple-element":
            inner = _followed(instruction.operands[0], scope, steps)
            if inner.instruction.opcode != "tuple":
                break
            instruction, scope = inner.instruction.operands[instruction.tuple_index], inner.scope
        else:
            break
    return _ScopedInstruction(instruction, scope)


def _keeps_number(retyped: Instruction) -> bool:
    """Can the type hold every integer of the operand's?"""
    given, made = retyped.operands[0].shape, retyped.shape
    if not (given.is_integral and made.is_integral):
        return False
    return all(number in _integers(made) for number in (_integers(given)[0], _integers(given)[-1]))


def _integers(shape: Shape) -> range:
    """Those that an element of an integral type can be."""
    bits = int(shape.element_type[1:])
    return range(-(1 << bits - 1), 1 << bits - 1) if shape.element_type[0] == "s" else range(1 << bits)


def _element(value: Instruction, index: int) -> _ScopedInstruction:
    """Where element `index` of a tuple (or the value itself) comes from."""
    source = _source(value, None)
    if index == _WHOLE or source.instruction.opcode != "tuple":
        return source
    return _source(source.instruction.operands[index], source.scope)


def _carry_index(place: _ScopedInstruction, computation: Computation) -> int | None:
    """The element of the carry of `computation` that `place` is, unchanged; None for anything else."""
    instruction, scope = place
    if instruction.opcode == "get-tuple-element":
        holder = _source(instruction.operands[0], scope)
        return instruction.tuple_index if _is_carry(holder, computation) else None
    return _WHOLE if _is_carry(place, computation) else None


def _is_carry(place: _ScopedInstruction, computation: Computation) -> bool:
    instruction, scope = place
    return instruction.opcode == "parameter" and scope is None and instruction.computation is computation


def _integer(constant: Instruction) -> int | None:
    shape = constant.shape
    if shape.size != 1 or not shape.is_integral:
        return None
    return int(constant.literal.reshape(()))
